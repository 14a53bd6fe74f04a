#include "launcher/rendezvous/tcp_store_server.hpp"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include "common/error.hpp"
#include "common/scope_exit.hpp"
#include "tests/launcher/rendezvous/store_fixture.hpp"

namespace cxxrun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

TEST(TcpStoreServer, SetIsSeenByOtherClientsAndByTheOwner) {
  TcpStoreServer server(loopback_options());
  RawClient a(server), b(server);
  a.set("/k", "value");
  a.expect_no_reply_pending();
  EXPECT_EQ(b.get("/k"), "value");
  EXPECT_EQ(server.get("/k"), "value");
  server.set("/mine", "1");
  EXPECT_EQ(server.add("/mine", 1), 2);
  EXPECT_EQ(b.get("/mine"), "2");
  EXPECT_EQ(b.get("/missing"), "");
}

TEST(TcpStoreServer, CountersCheckDeleteAndListing) {
  TcpStoreServer server(loopback_options());
  RawClient client(server);
  EXPECT_EQ(client.number(StoreOp::kAdd, {"n"}, 2), 2);
  EXPECT_EQ(client.number(StoreOp::kAdd, {"n"}, 40), 42);
  client.send({StoreOp::kCheck, {"n", "m"}});
  EXPECT_EQ(client.receive_byte(), kCheckNotReady);
  client.send({StoreOp::kAppend, {"m"}, {"ab"}});
  client.send({StoreOp::kAppend, {"m"}, {"cd"}});
  client.send({StoreOp::kCheck, {"n", "m"}});
  EXPECT_EQ(client.receive_byte(), kCheckReady);
  EXPECT_EQ(client.get("m"), "abcd");
  EXPECT_EQ(client.number(StoreOp::kNumKeys, {}), 2);
  client.send({StoreOp::kListKeys});
  EXPECT_EQ(client.receive_number<uint64_t>(), 2u);
  std::vector<std::string> names{client.receive_text(), client.receive_text()};
  EXPECT_THAT(names, UnorderedElementsAre("n", "m"));
  EXPECT_EQ(client.number(StoreOp::kDeleteKey, {"n"}), 1);
  EXPECT_EQ(client.number(StoreOp::kDeleteKey, {"n"}), 0);
}

TEST(TcpStoreServer, MultiSetAndMultiGetKeepTheOrder) {
  TcpStoreServer server(loopback_options());
  RawClient client(server);
  client.send({StoreOp::kMultiSet, {"a", "b", "a"}, {"1", "2", "3"}});
  client.send({StoreOp::kMultiGet, {"b", "missing", "a"}});
  EXPECT_EQ(client.receive_text(), "2");
  EXPECT_EQ(client.receive_text(), "");
  EXPECT_EQ(client.receive_text(), "3");
}

// Every operation that creates a key ends the waits for it.
TEST(TcpStoreServer, WaitEndsWithTheLastMissingKey) {
  TcpStoreServer server(loopback_options());
  RawClient waiter(server), other(server);
  server.set("there", "");
  waiter.wait({"set", "there", "add", "append", "set", "multi", "compare", "queue", "mine"});
  const StoreRequest creations[] = {
      {StoreOp::kSet, {"set"}, {""}},
      {StoreOp::kAdd, {"add"}},
      {StoreOp::kAppend, {"append"}, {""}},
      {StoreOp::kMultiSet, {"multi"}, {""}},
      {StoreOp::kCompareSet, {"compare"}, {"", ""}},
      {StoreOp::kQueuePush, {"queue"}, {""}},
  };
  for (const StoreRequest& creation : creations) {
    waiter.expect_no_reply_pending();
    other.send(creation);
  }
  waiter.expect_no_reply_pending();
  server.set("mine", "");
  EXPECT_EQ(waiter.receive_byte(), kStopWaiting);
}

TEST(TcpStoreServer, WaitForWhatIsThereOrForNothingIsAnsweredAtOnce) {
  TcpStoreServer server(loopback_options());
  RawClient client(server);
  server.set("k", "");
  client.wait({"k", "k"});
  EXPECT_EQ(client.receive_byte(), kStopWaiting);
  client.wait({});
  EXPECT_EQ(client.receive_byte(), kStopWaiting);
}

TEST(TcpStoreServer, ACompareSetThatFailsWakesNobody) {
  TcpStoreServer server(loopback_options());
  RawClient waiter(server), other(server);
  waiter.wait({"k"});
  EXPECT_EQ(other.compare_set("k", "expected", "new"), "expected");
  waiter.expect_no_reply_pending();
  EXPECT_EQ(other.compare_set("k", "", "new"), "new");
  EXPECT_EQ(waiter.receive_byte(), kStopWaiting);
  EXPECT_EQ(other.compare_set("k", "", "newer"), "new");
  EXPECT_EQ(other.compare_set("k", "new", "newer"), "newer");
}

TEST(TcpStoreServer, ACancelledWaitIsNotAnsweredLater) {
  TcpStoreServer server(loopback_options());
  RawClient waiter(server), other(server);
  waiter.wait({"a", "b"});
  waiter.send({StoreOp::kCancelWait});
  EXPECT_EQ(waiter.receive_byte(), kWaitCancelled);
  server.set("a", "");
  server.set("b", "");
  waiter.expect_no_reply_pending();
  waiter.wait({"a", "b"});
  EXPECT_EQ(waiter.receive_byte(), kStopWaiting);
}

TEST(TcpStoreServer, ACancelThatComesTooLateIsStillAnswered) {
  TcpStoreServer server(loopback_options());
  RawClient waiter(server);
  waiter.wait({"a"});
  waiter.expect_no_reply_pending();
  server.set("a", "");
  waiter.send({StoreOp::kCancelWait});
  EXPECT_EQ(waiter.receive_byte(), kStopWaiting);
  EXPECT_EQ(waiter.receive_byte(), kWaitCancelled);
}

TEST(TcpStoreServer, AWaiterThatLeavesIsForgotten) {
  TcpStoreServer server(loopback_options());
  RawClient other(server);
  {
    RawClient waiter(server), in_barrier(server);
    waiter.wait({"a"});
    in_barrier.send({StoreOp::kBarrier, {"b"}, {}, 3});
    waiter.expect_no_reply_pending();
    in_barrier.expect_no_reply_pending();
    EXPECT_EQ(server.connections(), 3u);
  }
  other.expect_no_reply_pending();
  while (server.connections() > 1) server.on_ready();
  other.set("a", "");
  EXPECT_EQ(other.number(StoreOp::kAdd, {"b"}, 5), 6);
}

TEST(TcpStoreServer, BarrierReleasesAllWhenTheLastArrives) {
  TcpStoreServer server(loopback_options());
  RawClient a(server), b(server), c(server);
  const StoreRequest barrier{StoreOp::kBarrier, {"/b"}, {}, 3};
  a.send(barrier);
  b.send(barrier);
  a.expect_no_reply_pending();
  b.expect_no_reply_pending();
  c.send(barrier);
  for (RawClient* client : {&a, &b, &c}) EXPECT_EQ(client->receive_byte(), kStopWaiting);
  a.send({StoreOp::kBarrier, {"/alone"}, {}, 1});
  EXPECT_EQ(a.receive_byte(), kStopWaiting);
}

TEST(TcpStoreServer, OneElementOfAQueueWakesOneClient) {
  TcpStoreServer server(loopback_options());
  RawClient first(server), second(server), producer(server);
  EXPECT_EQ(first.number(StoreOp::kQueuePop, {"q"}), 0);
  first.wait({"q"});
  first.expect_no_reply_pending();
  second.wait({"q"});
  second.expect_no_reply_pending();
  producer.send({StoreOp::kQueuePush, {"q"}, {"1"}});
  EXPECT_EQ(producer.number(StoreOp::kQueueLen, {"q"}), 1);
  EXPECT_EQ(first.receive_byte(), kStopWaiting);
  second.expect_no_reply_pending();
  EXPECT_EQ(first.number(StoreOp::kQueuePop, {"q"}), 1);
  EXPECT_EQ(first.receive_text(), "1");
  producer.send({StoreOp::kQueuePush, {"q"}, {"2"}});
  EXPECT_EQ(second.receive_byte(), kStopWaiting);
}

TEST(TcpStoreServer, AMisbehavingClientCostsOnlyItsOwnConnection) {
  std::string report;
  StoreServerOptions options = loopback_options();
  options.report = [&](const std::string& line) { report = line; };
  TcpStoreServer server(options);
  RawClient good(server);
  const auto misbehave = [&](const std::string& bytes) {
    RawClient bad(server);
    bad.send_bytes(bytes);
    return bad.is_closed_by_server();
  };
  EXPECT_TRUE(misbehave("\x63"));
  EXPECT_THAT(report,
              testing::AllOf(HasSubstr("operation 99"), HasSubstr("--agent-store=off"), HasSubstr("127.0.0.1:")));
  server.set("text", "abc");
  std::string bytes;
  encode({StoreOp::kAdd, {"text"}, {}, 1}, bytes);
  EXPECT_TRUE(misbehave(bytes));
  EXPECT_THAT(report, HasSubstr("'text'"));
  bytes.clear();
  encode({StoreOp::kWait, {"never"}}, bytes);
  EXPECT_TRUE(misbehave(bytes + bytes));
  EXPECT_EQ(good.get("text"), "abc");
  EXPECT_EQ(server.connections(), 1u);
}

TEST(TcpStoreServer, TheTotalSizeIsLimited) {
  std::string report;
  StoreServerOptions options = loopback_options();
  options.limit_bytes = 100'000;
  options.report = [&](const std::string& line) { report = line; };
  TcpStoreServer server(options);
  RawClient reader(server), full(server), half(server), other_half(server);
  full.set("a", std::string(60'000, 'x'));
  full.set("b", std::string(60'000, 'x'));
  EXPECT_TRUE(full.is_closed_by_server());
  EXPECT_THAT(report, HasSubstr("limit of 100000"));
  // Two unfinished requests that would each be allowed.
  std::string bytes;
  encode({StoreOp::kSet, {"c"}, {std::string(90'000, 'x')}}, bytes);
  bytes.resize(70'000);
  half.send_bytes(bytes);
  other_half.send_bytes(bytes);
  EXPECT_TRUE(other_half.is_closed_by_server());
  EXPECT_THAT(report, HasSubstr("unfinished requests"));
  half.send_bytes(std::string(90'000 + 18 - 70'000, 'x'));
  // A small request may ask for a large value many times.
  reader.send({StoreOp::kMultiGet, std::vector<std::string>(10, "a")});
  EXPECT_TRUE(reader.is_closed_by_server());
  EXPECT_THAT(report, HasSubstr("MULTI_GET of 600000 bytes"));
}

TEST(TcpStoreServer, AClientThatDoesNotReadBlocksNobody) {
  TcpStoreServer server(loopback_options());
  const std::string value(1 << 20, 'v');
  server.set("large", value);
  RawClient lazy(server), other(server);
  constexpr int kRequests = 50;
  for (int i = 0; i < kRequests; ++i) lazy.send({StoreOp::kGet, {"large"}});
  EXPECT_EQ(other.get("large"), value);
  for (int i = 0; i < kRequests; ++i) ASSERT_EQ(lazy.receive_text(), value) << i;
  lazy.expect_no_reply_pending();
}

TEST(TcpStoreServer, RequestsMayComeByteByByte) {
  TcpStoreServer server(loopback_options());
  RawClient client(server, false);
  std::string bytes;
  encode({StoreOp::kValidate, {}, {}, kStoreMagic}, bytes);
  encode({StoreOp::kMultiSet, {"a", "b"}, {"1", "2"}}, bytes);
  encode({StoreOp::kGet, {"b"}}, bytes);
  for (const char byte : bytes) client.send_bytes({&byte, 1});
  EXPECT_EQ(client.receive_text(), "2");
}

TEST(TcpStoreServer, ATorch113ClientIsServed) {
  TcpStoreServer server(loopback_options());
  RawClient client(server, false);
  std::string bytes = "\x03";  // ADD
  append_text(bytes, "init/");
  append_number(bytes, int64_t{1});
  client.send_bytes(bytes);
  EXPECT_EQ(client.receive_number<int64_t>(), 1);
  bytes = std::string(1, '\0');  // SET
  append_text(bytes, "/k");
  append_text(bytes, "v");
  bytes += '\x05';  // WAIT
  append_number(bytes, uint64_t{1});
  append_text(bytes, "/k");
  client.send_bytes(bytes);
  EXPECT_EQ(client.receive_byte(), kStopWaiting);
  EXPECT_EQ(server.get("/k"), "v");
}

TEST(TcpStoreServer, TwoHundredClientsAtOnce) {
  TcpStoreServer server(loopback_options());
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 200; ++i) clients.push_back(std::make_unique<RawClient>(server));
  for (auto& client : clients) client->wait({"go"});
  for (auto& client : clients) client->expect_no_reply_pending();
  EXPECT_EQ(server.connections(), 200u);
  server.set("go", "");
  for (auto& client : clients) EXPECT_EQ(client->receive_byte(), kStopWaiting);
  for (auto& client : clients) client->number(StoreOp::kAdd, {"n"}, 1);
  EXPECT_EQ(server.get("n"), "200");
  clients.clear();
  while (server.connections() > 0) server.on_ready();
}

TEST(TcpStoreServer, ClientsAboveTheLimitWaitUntilOneLeaves) {
  int reports = 0;
  StoreServerOptions options = loopback_options();
  options.max_connections = 2;
  options.report = [&](const std::string& line) { reports += line.find("ulimit -n") != std::string::npos; };
  TcpStoreServer server(options);
  auto first = std::make_unique<RawClient>(server);
  RawClient second(server), third(server);
  first->expect_no_reply_pending();
  second.expect_no_reply_pending();
  EXPECT_EQ(server.connections(), 2u);
  EXPECT_EQ(reports, 1);
  pollfd fds{server.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&fds, 1, 0), 0) << "the owner's loop would spin";
  first.reset();
  third.expect_no_reply_pending();
}

TEST(TcpStoreServer, RunningOutOfDescriptorsIsSurvived) {
  TcpStoreServer server(loopback_options());
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const ScopeExit restore([&] { ::setrlimit(RLIMIT_NOFILE, &limit); });
  auto first = std::make_unique<RawClient>(server);
  first->expect_no_reply_pending();
  RawClient second(server, false);
  rlimit none = limit;
  none.rlim_cur = 0;
  ::setrlimit(RLIMIT_NOFILE, &none);
  server.on_ready();
  EXPECT_EQ(server.connections(), 1u);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  first.reset();
  second.send({StoreOp::kValidate, {}, {}, kStoreMagic});
  second.expect_no_reply_pending();
}

TEST(TcpStoreServer, ResetDropsClientsAndDataButNotThePort) {
  TcpStoreServer server(loopback_options());
  const int port = server.port();
  RawClient old(server), waiting(server), backlog(server, false);
  old.set("k", "v");
  waiting.wait({"other"});
  old.expect_no_reply_pending();
  waiting.expect_no_reply_pending();
  server.reset();
  EXPECT_EQ(server.port(), port);
  EXPECT_EQ(server.connections(), 0u);
  for (RawClient* client : {&old, &waiting, &backlog}) EXPECT_TRUE(client->is_closed_by_server());
  RawClient fresh(server);
  EXPECT_EQ(fresh.get("k"), "");
  EXPECT_EQ(fresh.number(StoreOp::kNumKeys, {}), 0);
  fresh.set("other", "");
}

TEST(TcpStoreServer, KeepOnlyDeletesTheRest) {
  TcpStoreServer server(loopback_options());
  for (const char* key : {"/job/a", "/rank/b", "init/"}) server.set(key, "1");
  server.keep_only({"/job/", "init/"});
  EXPECT_TRUE(server.has("/job/a"));
  EXPECT_TRUE(server.has("init/"));
  EXPECT_FALSE(server.has("/rank/b"));
}

TEST(TcpStoreServer, AllInterfacesMeansBothFamilies) {
  TcpStoreServer server({.address = ""});
  RawClient v4(server);
  v4.expect_no_reply_pending();
  UniqueFd v6(::socket(AF_INET6, SOCK_STREAM, 0));
  if (!v6) GTEST_SKIP() << "no IPv6 here";
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<uint16_t>(server.port()));
  address.sin6_addr = in6addr_loopback;
  if (::connect(v6.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    ASSERT_EQ(errno, EADDRNOTAVAIL) << "no ::1 here is the only excuse";
  }
}

}  // namespace
}  // namespace cxxrun
