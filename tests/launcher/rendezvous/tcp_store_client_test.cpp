#include "launcher/rendezvous/tcp_store_client.hpp"

#include <gmock/gmock.h>

#include "launcher/rendezvous/listen_socket.hpp"
#include "tests/launcher/rendezvous/store_fixture.hpp"

namespace cxxrun {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using namespace std::chrono_literals;

TEST(TcpStoreClient, SpeaksEveryOperationItOffers) {
  StoreThread server;
  TcpStoreClient store("127.0.0.1", server.port(), WaitLimit::within(20s));
  EXPECT_EQ(store.get("k"), "");
  store.set("k", std::string("\0binary", 7));
  EXPECT_EQ(store.get("k"), std::string("\0binary", 7));
  EXPECT_EQ(store.add("n", 7), 7);
  EXPECT_TRUE(store.check({"k", "n"}));
  EXPECT_FALSE(store.check({"k", "m"}));
  EXPECT_EQ(store.compare_set("c", "", "1"), "1");
  EXPECT_EQ(store.compare_set("c", "0", "2"), "1");
  EXPECT_TRUE(store.remove("c"));
  EXPECT_FALSE(store.remove("c"));
  store.wait({"k", "n"});
}

TEST(TcpStoreClient, LargeValuesPassThroughFullSocketBuffers) {
  StoreThread server;
  TcpStoreClient store("127.0.0.1", server.port(), WaitLimit::within(60s));
  const std::string value(32 << 20, 'v');
  store.set("large", value);
  EXPECT_EQ(store.get("large"), value);
}

TEST(TcpStoreClient, WaitsUntilAnotherClientSets) {
  StoreThread server;
  std::thread other([&] { TcpStoreClient("127.0.0.1", server.port(), WaitLimit::within(20s)).set("late", "v"); });
  TcpStoreClient store("localhost", server.port(), WaitLimit::within(20s));
  store.wait({"late"});
  EXPECT_EQ(store.get("late"), "v");
  other.join();
}

TEST(TcpStoreClient, AWaitThatTimesOutLeavesTheConnectionUsable) {
  StoreThread server;
  TcpStoreClient store("127.0.0.1", server.port(), WaitLimit::within(20s));
  for (int i = 0; i < 3; ++i) {
    store.set_limit(WaitLimit::within(1ms));
    EXPECT_THAT([&] { store.wait({"never"}); }, ThrowsMessage<StoreTimeout>(HasSubstr("never")));
  }
  store.set_limit(WaitLimit::within(20s));
  store.set("never", "now");
  store.wait({"never"});
  EXPECT_EQ(store.get("never"), "now");
}

TEST(TcpStoreClient, AReadableDescriptorCancelsAWait) {
  StoreThread server;
  const UniqueFd cancel(::eventfd(1, 0));
  TcpStoreClient store("127.0.0.1", server.port(), WaitLimit::within(20s));
  store.set_limit(WaitLimit::within(20s, cancel.get()));
  EXPECT_THROW(store.wait({"never"}), WaitCancelled);
  store.set_limit(WaitLimit::within(20s));
  EXPECT_EQ(store.add("n", 1), 1);
}

TEST(TcpStoreClient, ConnectingIsRetriedUntilTheServerIsThere) {
  const int port = open_listener("127.0.0.1", {}, {}).port;
  std::unique_ptr<StoreThread> server;
  std::thread client([&] { TcpStoreClient("127.0.0.1", port, WaitLimit::within(20s)).set("k", "v"); });
  server = std::make_unique<StoreThread>(StoreServerOptions{.address = "127.0.0.1", .port = {port, true}});
  client.join();
}

TEST(TcpStoreClient, WithoutAServerItGivesUpWithTheReason) {
  const int port = open_listener("127.0.0.1", {}, {}).port;
  EXPECT_THAT([&] { TcpStoreClient("127.0.0.1", port, WaitLimit::within(1ms)); },
              ThrowsMessage<StoreTimeout>(AllOf(HasSubstr(std::to_string(port)), HasSubstr("refused"))));
  EXPECT_THAT([&] { TcpStoreClient("no.such.host.invalid", port, WaitLimit::within(1ms)); },
              ThrowsMessage<StoreTimeout>(HasSubstr("no.such.host")));
}

TEST(TcpStoreClient, ConnectingCanBeCancelled) {
  const int port = open_listener("127.0.0.1", {}, {}).port;
  const UniqueFd cancel(::eventfd(1, 0));
  EXPECT_THROW(TcpStoreClient("127.0.0.1", port, WaitLimit::within(60s, cancel.get())), WaitCancelled);
}

TEST(TcpStoreClient, AServerThatSaysNothingIsATimeoutNotAHang) {
  const BoundSocket mute = open_listener("127.0.0.1", {}, {});
  EXPECT_THROW(TcpStoreClient("127.0.0.1", mute.port, WaitLimit::within(50ms)), StoreTimeout);
}

TEST(TcpStoreClient, TheEndOfTheServerIsTold) {
  auto server = std::make_unique<StoreThread>();
  TcpStoreClient store("127.0.0.1", server->port(), WaitLimit::within(20s));
  server.reset();
  EXPECT_THROW(store.add("n", 1), StoreClosed);
  EXPECT_THROW(store.add("n", 1), StoreClosed);
}

}  // namespace
}  // namespace cxxrun
