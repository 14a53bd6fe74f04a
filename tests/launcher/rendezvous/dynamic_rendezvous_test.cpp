#include "launcher/rendezvous/dynamic_rendezvous.hpp"

#include <gmock/gmock.h>

#include <future>

#include "launcher/rendezvous/tcp_store_client.hpp"
#include "tests/launcher/rendezvous/store_fixture.hpp"
#include "tests/support/message_of.hpp"

namespace cxxrun {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

using Conf = std::map<std::string, std::string>;

// What a launcher does with a rendezvous. The first one to be made is the host.
class Node {
 public:
  explicit Node(RendezvousOptions options) : rendezvous_(std::move(options)) {}

  std::optional<RendezvousResult> join() { return rendezvous_.join(attempt_++, cancel_.get()); }
  Interruption wait_for_interruption() {
    while (rendezvous_.interruption() == Interruption::kNone) serve_once();
    return rendezvous_.interruption();
  }
  void serve_once() {
    pollfd fds{rendezvous_.fd(), POLLIN, 0};
    if (::poll(&fds, 1, 100) > 0) rendezvous_.on_ready();
  }
  template <class T>
  T serve_until(std::future<T> done) {
    while (done.wait_for(0s) != std::future_status::ready) serve_once();
    return done.get();
  }
  Ending finish(bool success) { return rendezvous_.finish(success, cancel_.get()); }
  DynamicRendezvous& rendezvous() { return rendezvous_; }
  void cancel() { ::eventfd_write(cancel_.get(), 1); }

 private:
  UniqueFd cancel_{::eventfd(0, EFD_CLOEXEC)};
  int64_t attempt_ = 0;
  DynamicRendezvous rendezvous_;
};

template <class F>
auto on_thread(F work) {
  return std::async(std::launch::async, std::move(work));
}

class DynamicRendezvousTest : public testing::Test {
 protected:
  RendezvousOptions options(int64_t least, int64_t most, int64_t local_world_size = 2, Conf conf = {}) const {
    conf.try_emplace("join_timeout", "60");
    return {.run_id = "job",
            .nodes = most,
            .min_nodes = least,
            .local_world_size = local_world_size,
            .port = {port_, true},
            .exit_barrier_timeout = 60s,
            .conf = std::move(conf)};
  }
  TcpStoreClient client(int port) const { return TcpStoreClient("127.0.0.1", port, WaitLimit::within(30s)); }

  void wait_for_end_of(int64_t node) const { client(port_).wait({MeetingKeys("job").of("end", node)}); }

  // Until the host knows of so many nodes that wait. Other threads serve it.
  void wait_for_waiting(int64_t nodes) const {
    TcpStoreClient store = client(port_);
    const std::string key = MeetingKeys("job").state();
    while (read_meeting_state(key, store.get(key)).nodes != nodes) std::this_thread::yield();
  }

  const int port_ = open_listener("127.0.0.1", {}, {}).port;
};

TEST_F(DynamicRendezvousTest, NodesOfDifferentSizeGetConsecutiveRanksInOrderOfArrival) {
  const int64_t sizes[] = {2, 1, 3};
  std::vector<std::future<RendezvousResult>> results;
  std::vector<std::future<Ending>> endings;
  for (int64_t i = 0; i < 3; ++i) {
    std::promise<RendezvousResult> result;
    results.push_back(result.get_future());
    endings.push_back(on_thread([this, size = sizes[i], result = std::move(result)]() mutable {
      Node node(options(3, 3, size));
      result.set_value(*node.join());
      return node.finish(true);
    }));
    if (i < 2) wait_for_waiting(i + 1);
  }
  const int64_t bases[] = {0, 2, 3};
  const int master_port = [&] {
    const RendezvousResult first = results[0].get();
    EXPECT_EQ(first.group_rank, 0);
    EXPECT_EQ(first.base_global_rank, 0);
    EXPECT_NE(first.master_port, port_);
    return first.master_port;
  }();
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(results[i].get(), (RendezvousResult{.group_rank = static_cast<int64_t>(i),
                                                  .group_world_size = 3,
                                                  .base_global_rank = bases[i],
                                                  .global_world_size = 6,
                                                  .base_role_rank = bases[i],
                                                  .role_world_size = 6,
                                                  .master_addr = "127.0.0.1",
                                                  .master_port = master_port}));
  }
  for (auto& ending : endings) EXPECT_EQ(ending.get(), Ending::kTogether);
}

TEST_F(DynamicRendezvousTest, AFullHouseDoesNotWaitForTheLastCall) {
  Node node(options(1, 2, 1, {{"last_call_timeout", "50"}, {"join_timeout", "40"}}));
  auto other = on_thread([this] {
    Node node(options(1, 2, 1, {{"last_call_timeout", "50"}, {"join_timeout", "40"}}));
    return node.join()->group_world_size;
  });
  EXPECT_EQ(node.join()->group_world_size, 2);
  EXPECT_EQ(node.serve_until(std::move(other)), 2);
}

TEST_F(DynamicRendezvousTest, AfterTheLastCallThoseWhoAreThereBegin) {
  Node node(options(1, 2, 3, {{"last_call_timeout", "1"}}));
  const auto result = node.join();
  EXPECT_EQ(result->group_world_size, 1);
  EXPECT_EQ(result->global_world_size, 3);
  EXPECT_EQ(node.finish(true), Ending::kTogether);
}

TEST_F(DynamicRendezvousTest, TheRanksStoreIsServedAndANewRoundHasAnEmptyOne) {
  std::promise<void> again;
  Node node(options(2, 2));
  auto other = on_thread([&, again = again.get_future()]() mutable {
    Node node(options(2, 2));
    const int first = node.join()->master_port;
    client(first).set("/gloo", "stale");
    EXPECT_TRUE(client(first).check({"/gloo"}));
    again.get();
    node.rendezvous().announce_failure(true);
    const auto second = node.join();
    EXPECT_NE(second->master_port, first);
    EXPECT_FALSE(client(second->master_port).check({"/gloo"}));
    return node.finish(true);
  });
  const auto first = node.join();
  again.set_value();
  EXPECT_EQ(node.wait_for_interruption(), Interruption::kRestart);
  const auto second = node.join();
  EXPECT_EQ(node.rendezvous().interruption(), Interruption::kNone);
  EXPECT_EQ(second->group_rank, first->group_rank);
  EXPECT_EQ(node.finish(true), Ending::kTogether);
  EXPECT_EQ(other.get(), Ending::kTogether);
}

TEST_F(DynamicRendezvousTest, ARestartOfTheHostInterruptsTheOthersAndNobodyIsLeftBehind) {
  Node node(options(1, 2));
  auto other = on_thread([this] {
    Node node(options(1, 2));
    EXPECT_TRUE(node.join());
    EXPECT_EQ(node.wait_for_interruption(), Interruption::kRestart);
    EXPECT_EQ(node.join()->group_world_size, 2);
    return node.finish(true);
  });
  EXPECT_EQ(node.join()->group_world_size, 2);
  EXPECT_EQ(node.join()->group_world_size, 2);  // waits for the other, although one node would be enough
  EXPECT_EQ(node.finish(true), Ending::kTogether);
  EXPECT_EQ(other.get(), Ending::kTogether);
}

TEST_F(DynamicRendezvousTest, ANewNodeMakesTheOthersMeetAgain) {
  Node node(options(1, 2, 1, {{"last_call_timeout", "1"}}));
  EXPECT_EQ(node.join()->group_world_size, 1);
  auto other = on_thread([this] {
    Node late(options(1, 2, 1));
    const auto result = late.join();
    EXPECT_EQ(result->group_rank, 1);
    return late.finish(true);
  });
  EXPECT_EQ(node.wait_for_interruption(), Interruption::kRestart);
  EXPECT_EQ(node.join()->group_world_size, 2);
  EXPECT_EQ(node.finish(true), Ending::kTogether);
  EXPECT_EQ(other.get(), Ending::kTogether);
}

TEST_F(DynamicRendezvousTest, AFailureReachesAllOthersWhoeverFails) {
  for (const bool host_fails : {true, false}) {
    std::promise<void> running;
    Node node(options(2, 2));
    auto other = on_thread([&, running = running.get_future()]() mutable {
      Node node(options(2, 2));
      EXPECT_TRUE(node.join());
      running.get();
      if (!host_fails) return node.finish(false);
      EXPECT_EQ(node.wait_for_interruption(), Interruption::kPeerFailed);
      return node.finish(true);
    });
    EXPECT_TRUE(node.join());
    running.set_value();
    if (!host_fails) {
      EXPECT_EQ(node.wait_for_interruption(), Interruption::kPeerFailed);
    }
    EXPECT_EQ(node.finish(!host_fails), host_fails ? Ending::kTogether : Ending::kPeerFailed);
    EXPECT_EQ(other.get(), host_fails ? Ending::kPeerFailed : Ending::kTogether);
  }
}

TEST_F(DynamicRendezvousTest, AnAnnouncedFailureIsThatOfAPeerForTheOthersOnly) {
  Node node(options(2, 2));
  std::promise<int> host_left;
  auto other = on_thread([this, host_left = host_left.get_future()]() mutable {
    Node failing(options(2, 2));
    EXPECT_TRUE(failing.join());
    failing.rendezvous().announce_failure(false);
    failing.serve_until(std::move(host_left));
    EXPECT_EQ(failing.rendezvous().interruption(), Interruption::kNone);
    return failing.finish(false);
  });
  EXPECT_TRUE(node.join());
  EXPECT_EQ(node.wait_for_interruption(), Interruption::kPeerFailed);
  EXPECT_EQ(node.finish(true), Ending::kPeerFailed);
  host_left.set_value(0);
  EXPECT_EQ(other.get(), Ending::kTogether);
}

TEST_F(DynamicRendezvousTest, AFailureReleasesThoseInTheExitBarrier) {
  Node node(options(2, 2));
  auto other = on_thread([this] {
    Node node(options(2, 2));
    EXPECT_TRUE(node.join());
    wait_for_end_of(1);
    return node.finish(false);
  });
  EXPECT_TRUE(node.join());
  EXPECT_EQ(node.finish(true), Ending::kPeerFailed);
  EXPECT_EQ(other.get(), Ending::kTogether);
}

TEST_F(DynamicRendezvousTest, ANodeThatVanishesIsMissedByThoseWhoRunAndThoseWhoAreThrough) {
  const Conf quick = {{"keep_alive_interval", "1"}, {"keep_alive_max_attempt", "2"}};
  for (const bool through : {false, true}) {
    Node node(options(2, 2, 1, quick));
    auto other = on_thread([&] { EXPECT_TRUE(Node(options(2, 2, 1, quick)).join()); });
    EXPECT_TRUE(node.join());
    node.serve_until(std::move(other));
    if (!through) {
      EXPECT_EQ(node.wait_for_interruption(), Interruption::kPeerFailed);
    }
    EXPECT_EQ(node.finish(true), Ending::kPeerFailed);
  }
}

TEST_F(DynamicRendezvousTest, WhenEnoughNodesRemainTheyGoOnWithoutTheOneThatVanished) {
  const Conf quick = {{"keep_alive_interval", "1"}, {"keep_alive_max_attempt", "2"}};
  Node node(options(1, 2, 1, quick));
  auto other = on_thread([&] { EXPECT_TRUE(Node(options(1, 2, 1, quick)).join()); });
  EXPECT_EQ(node.join()->group_world_size, 2);
  EXPECT_EQ(node.wait_for_interruption(), Interruption::kRestart);
  EXPECT_EQ(node.join()->group_world_size, 1);
  EXPECT_EQ(node.finish(true), Ending::kTogether);
}

TEST_F(DynamicRendezvousTest, TheDeathOfTheHostEndsTheJobInEveryPhase) {
  for (const bool through : {false, true}) {
    auto host = std::make_unique<Node>(options(2, 2));
    std::promise<int> joined;
    auto joined_future = joined.get_future();
    auto other = on_thread([&]() mutable {
      Node node(options(2, 2));
      joined.set_value(node.join() ? 1 : 0);
      if (!through) {
        EXPECT_EQ(node.wait_for_interruption(), Interruption::kPeerFailed);
      }
      return node.finish(true);
    });
    EXPECT_TRUE(host->join());
    EXPECT_EQ(host->serve_until(std::move(joined_future)), 1);
    host.reset();
    EXPECT_EQ(other.get(), Ending::kPeerFailed);
  }
}

TEST_F(DynamicRendezvousTest, AJoinThatLosesTheHostSaysSo) {
  auto store = std::make_unique<StoreThread>(
      StoreServerOptions{.address = "127.0.0.1", .port = {port_, true}});
  client(port_).set(MeetingKeys("job").state(), to_text(MeetingState()));
  auto join = on_thread([this] { Node(options(2, 2)).join(); });
  client(port_).wait({MeetingKeys("job").of("node", 1)});
  store.reset();
  EXPECT_THAT(message_of<RendezvousError>([&] { join.get(); }), HasSubstr("has left"));
}

TEST_F(DynamicRendezvousTest, AJoinThatTimesOutSaysHowManyOfHowManyCame) {
  Node node(options(2, 3, 1, {{"join_timeout", "1"}}));
  EXPECT_THAT(message_of<RendezvousError>([&] { node.join(); }),
              AllOf(HasSubstr("'job'"), HasSubstr("after 1 s"), HasSubstr("1 of at least 2 nodes"),
                    HasSubstr("--rdzv-endpoint")));
}

TEST_F(DynamicRendezvousTest, OneNodeTooManyIsToldThatThereIsNoPlace) {
  Node node(options(1, 1));
  EXPECT_TRUE(node.join());
  auto other = on_thread([this] { Node(options(1, 1, 1, {{"join_timeout", "1"}})).join(); });
  EXPECT_THAT(message_of<RendezvousError>([&] { node.serve_until(std::move(other)); }),
              AllOf(HasSubstr("already has its 1 nodes"), HasSubstr("--nnodes")));
  EXPECT_EQ(node.rendezvous().interruption(), Interruption::kNone);
}

TEST_F(DynamicRendezvousTest, ALatecomerLearnsThatTheJobHasEnded) {
  Node node(options(2, 2));
  auto failing = on_thread([this] {
    Node other(options(2, 2));
    EXPECT_TRUE(other.join());
    return other.finish(false);
  });
  EXPECT_TRUE(node.join());
  EXPECT_EQ(node.wait_for_interruption(), Interruption::kPeerFailed);
  auto late = on_thread([this] { Node(options(2, 2)).join(); });
  EXPECT_THAT(message_of<RendezvousError>([&] { node.serve_until(std::move(late)); }),
              AllOf(HasSubstr("the job 'job' has already ended"), HasSubstr("node 2"), HasSubstr("failed")));
}

TEST_F(DynamicRendezvousTest, JoinCanBeCancelledOnEveryNode) {
  Node host(options(2, 2)), other(options(2, 2));
  host.cancel();
  EXPECT_EQ(host.join(), std::nullopt);
  other.cancel();
  EXPECT_EQ(other.join(), std::nullopt);
  EXPECT_EQ(other.finish(false), Ending::kTogether);
  EXPECT_NE(host.finish(false), Ending::kPeerFailed);
}

TEST_F(DynamicRendezvousTest, ThePortOfAnotherJobIsNotJoined) {
  Node host(options(1, 1));
  EXPECT_TRUE(host.join());
  RendezvousOptions stranger = options(1, 1);
  stranger.run_id = "other";
  auto join = on_thread([&] { Node(stranger).join(); });
  EXPECT_THAT(message_of<RendezvousError>([&] { host.serve_until(std::move(join)); }),
              AllOf(HasSubstr("'other'"), HasSubstr("--rdzv-id"), HasSubstr("torchrun")));
}

TEST_F(DynamicRendezvousTest, WhoMustHostDoesNotJoinAndWhoMustNotDoesNotHost) {
  const BoundSocket taken = open_listener("127.0.0.1", {port_, true}, {});
  EXPECT_THROW(Node(options(1, 1, 1, {{"is_host", "'True'"}})), PortInUse);
  EXPECT_NO_THROW(Node(options(1, 1)));
  EXPECT_NO_THROW(Node(options(1, 1, 1, {{"is_host", "n"}})));
}

TEST_F(DynamicRendezvousTest, NonsenseFromOneNodeDoesNotHarmTheOthers) {
  Node node(options(1, 2, 1, {{"last_call_timeout", "1"}}));
  const char* rows[] = {"",
                        "{",
                        "[]",
                        R"({"join": 1})",
                        R"({"join": 1, "role": 3, "local_world_size": 1, "address": ""})",
                        R"({"join": -1, "role": "a", "local_world_size": 1, "address": ""})",
                        R"({"join": 1, "role": "a", "local_world_size": 99999999999, "address": ""})",
                        R"({"join": 1, "role": "a", "local_world_size": "1", "address": ""})"};
  auto stranger = on_thread([&] {
    TcpStoreClient store = client(port_);
    const MeetingKeys keys("job");
    for (const char* row : rows) store.set(keys.of("node", store.add(keys.nodes(), 1)), row);
    store.set(keys.nodes(), "99999999999999999999");
    store.check({keys.nodes()});
  });
  EXPECT_EQ(node.join()->group_world_size, 1);
  stranger.get();
  node.serve_once();
  EXPECT_EQ(node.rendezvous().interruption(), Interruption::kNone);
}

TEST_F(DynamicRendezvousTest, NonsenseFromTheHostIsNamedByKey) {
  for (const char* place : {"", "{}", R"({"error": 1})", R"({"round": 1, "group_rank": -1})"}) {
    StoreThread host;
    const MeetingKeys keys("job");
    TcpStoreClient store = client(host.port());
    store.set(keys.state(), to_text(MeetingState()));
    store.set(keys.place(1, 1), place);
    RendezvousOptions with = options(1, 1, 1, {{"is_host", "0"}});
    with.port.port = host.port();
    Node node(with);
    EXPECT_THAT(message_of<Error>([&] { node.join(); }), HasSubstr("place/1/1")) << place;
  }
}

TEST_F(DynamicRendezvousTest, WithoutAgentStoreThePortIsOnlyReserved) {
  RendezvousOptions off = options(1, 1);
  off.agent_store = AgentStore::kOff;
  Node node(off);
  const auto result = node.join();
  EXPECT_FALSE(result->use_agent_store);
  EXPECT_EQ(open_listener("127.0.0.1", {result->master_port, true}, {}).port, result->master_port);
}

TEST_F(DynamicRendezvousTest, TheLocalAddressOfTheHostIsPublished) {
  RendezvousOptions with = options(1, 1);
  with.local_addr = "127.0.0.3";
  Node node(with);
  EXPECT_EQ(node.join()->master_addr, "127.0.0.3");
}

TEST(RendezvousConf, MayStandInQuotesAndUnknownKeysAreIgnored) {
  const RendezvousConf conf =
      read_rendezvous_conf({{"'join_timeout", "5"}, {"last_call_timeout", "\"1\""}, {"timeout", "5'"}, {"x", "y"}});
  EXPECT_EQ(conf.join_timeout, 5s);
  EXPECT_EQ(conf.last_call_timeout, 1s);
  EXPECT_EQ(conf.keep_alive_max_attempt, 3);
}

TEST(RendezvousConf, BadValuesAreNamedByKey) {
  for (const char* value : {"0", "-1", "1.5", "x", "99999999999999999999"}) {
    EXPECT_THAT(message_of<UsageError>([&] { read_rendezvous_conf({{"keep_alive_interval", value}}); }),
                HasSubstr("keep_alive_interval"));
  }
  EXPECT_THAT(message_of<UsageError>([] { read_rendezvous_conf({{"is_host", "maybe"}}); }), HasSubstr("is_host=maybe"));
  EXPECT_THAT(message_of<UsageError>([] { read_rendezvous_conf({{"store_type", "file"}}); }),
              HasSubstr("not supported"));
}

}  // namespace
}  // namespace cxxrun
