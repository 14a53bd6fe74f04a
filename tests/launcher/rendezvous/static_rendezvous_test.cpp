#include "launcher/rendezvous/static_rendezvous.hpp"

#include <gmock/gmock.h>

#include <future>

#include "launcher/rendezvous/tcp_store_client.hpp"
#include "tests/launcher/rendezvous/store_fixture.hpp"

namespace cxxrun {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using namespace std::chrono_literals;

int free_port() { return open_listener("", {}, {}).port; }

RendezvousOptions node(int64_t rank, int64_t nodes, int port, int64_t local_world_size = 2,
                       std::string role = "default") {
  return {.nodes = nodes,
          .node_rank = rank,
          .local_world_size = local_world_size,
          .role = std::move(role),
          .port = {port, true},
          .join_timeout = 30s,
          .exit_barrier_timeout = 30s};
}

// What a launcher does between join and finish: it serves the store, on node 0, until `done` is there.
template <class T>
T serve_until(Rendezvous& rendezvous, std::future<T> done) {
  while (done.wait_for(0s) != std::future_status::ready) {
    pollfd fds{rendezvous.fd(), POLLIN, 0};
    if (::poll(&fds, 1, 20) > 0) rendezvous.on_ready();
  }
  return done.get();
}

template <class F>
auto on_thread(F work) {
  return std::async(std::launch::async, std::move(work));
}

TEST(AssignRanks, GlobalAndRoleRanksFollowTheOrderOfNodes) {
  EXPECT_THAT(assign_ranks({{"trainer", 2}, {"reader", 3}, {"trainer", 1}}),
              ElementsAre(RankAssignment{0, 6, 0, 3}, RankAssignment{2, 6, 0, 3}, RankAssignment{5, 6, 2, 3}));
}

TEST(StaticRendezvous, NodesOfDifferentSizeGetConsecutiveRanks) {
  const int port = free_port();
  const int64_t sizes[] = {2, 1, 3};
  std::vector<std::future<RendezvousResult>> results;
  std::vector<std::future<Ending>> endings;
  for (int64_t rank = 2; rank >= 0; --rank) {
    std::promise<RendezvousResult> result;
    results.push_back(result.get_future());
    endings.push_back(on_thread([=, &sizes, result = std::move(result)]() mutable {
      StaticRendezvous rendezvous(node(rank, 3, port, sizes[rank]));
      result.set_value(*rendezvous.join(0, -1));
      return rendezvous.finish(true, -1);
    }));
  }
  const int64_t bases[] = {0, 2, 3};
  for (size_t i = 0; i < 3; ++i) {
    const int64_t rank = 2 - static_cast<int64_t>(i);
    const RendezvousResult result = results[i].get();
    EXPECT_EQ(result, (RendezvousResult{.group_rank = rank,
                                        .group_world_size = 3,
                                        .base_global_rank = bases[rank],
                                        .global_world_size = 6,
                                        .base_role_rank = bases[rank],
                                        .role_world_size = 6,
                                        .master_addr = "127.0.0.1",
                                        .master_port = port}));
  }
  for (auto& ending : endings) EXPECT_EQ(ending.get(), Ending::kTogether);
}

// The keys as torchrun 2.14's server dumps them.
TEST(StaticRendezvous, NodeZeroServesTorchrunsKeys) {
  const int port = free_port();
  StaticRendezvous rendezvous(node(0, 2, port));
  auto peer = on_thread([port] {
    TcpStoreClient store("127.0.0.1", port, WaitLimit::within(30s));
    store.add("init/", 1);
    store.set("/none/torchelastic/role_info/1", R"({"role": "default", "rank": 1, "local_world_size": 4})");
    store.wait({"/none/torchelastic/assigned_ranks/1"});
    EXPECT_EQ(store.get("/none/torchelastic/assigned_ranks/0"), "[0, 6, 0, 6]");
    EXPECT_EQ(store.get("/none/torchelastic/role_info/0"), R"({"role":"default","rank":0,"local_world_size":2})");
    EXPECT_EQ(store.get("init/"), "2");
    const std::string assigned = store.get("/none/torchelastic/assigned_ranks/1");
    const int64_t done = store.add("/none/torchelastic/agent/terminal_state/num_members", 1);
    if (done == 2) store.set("/none/torchelastic/agent/terminal_state/last_member", "<val_ignored>");
    store.wait({"/none/torchelastic/agent/terminal_state/last_member"});
    return assigned;
  });
  EXPECT_EQ(rendezvous.join(0, -1)->global_world_size, 6);
  EXPECT_EQ(rendezvous.finish(true, -1), Ending::kTogether);
  EXPECT_EQ(peer.get(), "[2, 6, 2, 6]");
}

TEST(StaticRendezvous, OtherNodesSpeakToTorchrunsNodeZero) {
  StoreThread torchrun;
  auto ending = on_thread([port = torchrun.port()] {
    StaticRendezvous rendezvous(node(1, 2, port, 3));
    EXPECT_EQ(rendezvous.join(0, -1)->base_global_rank, 1);
    return rendezvous.finish(true, -1);
  });
  TcpStoreClient store("127.0.0.1", torchrun.port(), WaitLimit::within(30s));
  store.wait({"init/", "/none/torchelastic/role_info/1"});
  // torchrun leaves while our node cannot yet: so ours is the last, which must say so.
  store.add("/none/torchelastic/agent/terminal_state/num_members", 1);
  store.set("/none/torchelastic/assigned_ranks/1", "[1, 4, 1, 4]");
  EXPECT_EQ(ending.get(), Ending::kTogether);
  EXPECT_EQ(store.get("/none/torchelastic/agent/terminal_state/last_member"), "<val_ignored>");
}

TEST(StaticRendezvous, ANewAttemptBeginsTogetherWithoutTheKeysOfTheLast) {
  const int port = free_port();
  const auto rank_key_is_there = [port] {
    TcpStoreClient store("127.0.0.1", port, WaitLimit::within(30s));
    const bool there = store.check({"/gloo"});
    store.set("/gloo", "stale");
    return there;
  };
  std::promise<void> first_attempt_over;
  auto peer = on_thread([&, over = first_attempt_over.get_future()]() mutable {
    StaticRendezvous rendezvous(node(1, 2, port));
    EXPECT_TRUE(rendezvous.join(0, -1).has_value());
    over.get();
    EXPECT_TRUE(rendezvous.join(1, -1).has_value());
    return rendezvous.finish(true, -1);
  });
  StaticRendezvous rendezvous(node(0, 2, port));
  EXPECT_TRUE(rendezvous.join(0, -1).has_value());
  EXPECT_FALSE(serve_until(rendezvous, on_thread(rank_key_is_there)));
  EXPECT_TRUE(serve_until(rendezvous, on_thread(rank_key_is_there)));
  first_attempt_over.set_value();
  EXPECT_EQ(rendezvous.join(1, -1)->global_world_size, 4);
  EXPECT_FALSE(serve_until(rendezvous, on_thread(rank_key_is_there)));
  EXPECT_EQ(rendezvous.finish(true, -1), Ending::kTogether);
  EXPECT_EQ(peer.get(), Ending::kTogether);
}

TEST(StaticRendezvous, AFailedNodeReleasesTheOthersFromTheExitBarrier) {
  for (const int64_t failing : {0, 1}) {
    const int port = free_port();
    auto other = on_thread([=] {
      StaticRendezvous rendezvous(node(1, 2, port));
      EXPECT_TRUE(rendezvous.join(0, -1).has_value());
      return rendezvous.finish(failing != 1, -1);
    });
    StaticRendezvous rendezvous(node(0, 2, port));
    EXPECT_TRUE(rendezvous.join(0, -1).has_value());
    const Ending mine = rendezvous.finish(failing != 0, -1);
    EXPECT_EQ(failing == 0 ? other.get() : mine, Ending::kPeerFailed) << failing;
  }
}

TEST(StaticRendezvous, AVanishedNodeZeroEndsTheJobForThoseWhoSucceeded) {
  auto torchrun = std::make_unique<StoreThread>();
  const int port = torchrun->port();
  TcpStoreClient("127.0.0.1", port, WaitLimit::within(30s)).set("/none/torchelastic/assigned_ranks/1", "[1, 2, 1, 2]");
  StaticRendezvous rendezvous(node(1, 2, port));
  EXPECT_TRUE(rendezvous.join(0, -1).has_value());
  torchrun.reset();
  EXPECT_EQ(rendezvous.finish(true, -1), Ending::kTogether);
}

TEST(StaticRendezvous, AJoinThatLosesNodeZeroSaysSo) {
  auto torchrun = std::make_unique<StoreThread>();
  const int port = torchrun->port();
  auto join = on_thread([port] { StaticRendezvous(node(1, 2, port)).join(0, -1); });
  TcpStoreClient("127.0.0.1", port, WaitLimit::within(30s)).wait({"/none/torchelastic/role_info/1"});
  torchrun.reset();
  EXPECT_THAT([&] { join.get(); }, ThrowsMessage<Error>(HasSubstr("node 0 has left")));
}

TEST(StaticRendezvous, JoinCanBeCancelledOnEveryNode) {
  const int port = free_port();
  const UniqueFd cancel(::eventfd(1, 0));
  StaticRendezvous other(node(1, 2, port));
  EXPECT_EQ(other.join(0, cancel.get()), std::nullopt);  // nobody listens
  StaticRendezvous first(node(0, 2, port));
  EXPECT_EQ(first.join(0, cancel.get()), std::nullopt);  // nobody comes
  EXPECT_EQ(first.finish(false, cancel.get()), Ending::kTogether);
}

TEST(StaticRendezvous, ATimeoutNamesTheMissingNodes) {
  RendezvousOptions options = node(0, 4, free_port());
  options.join_timeout = 1ms;
  StaticRendezvous rendezvous(options);
  EXPECT_THAT([&] { rendezvous.join(0, -1); },
              ThrowsMessage<Error>(AllOf(HasSubstr("missing: node 1, 2, 3"), HasSubstr("127.0.0.1"))));
}

TEST(StaticRendezvous, TheTimeoutOfTheConfReplacesTheDefault) {
  RendezvousOptions options = node(0, 2, free_port());
  options.conf = {{"timeout", "1"}};
  StaticRendezvous rendezvous(options);
  EXPECT_THAT([&] { rendezvous.join(0, -1); }, ThrowsMessage<Error>(HasSubstr("after 1 s")));
}

TEST(StaticRendezvous, NonsenseInTheStoreIsNamedByKey) {
  const std::pair<const char*, const char*> rows[] = {{"{", "not JSON"},
                                                      {R"({"role": 1})", "without a role"},
                                                      {R"({"role": "a"})", "without a role"},
                                                      {"[]", "without a role"}};
  for (const auto& [info, message] : rows) {
    const int port = free_port();
    StaticRendezvous rendezvous(node(0, 2, port));
    auto peer = on_thread([port, info = info] {
      TcpStoreClient("127.0.0.1", port, WaitLimit::within(30s)).set("/none/torchelastic/role_info/1", info);
    });
    EXPECT_THAT([&] { rendezvous.join(0, -1); },
                ThrowsMessage<Error>(AllOf(HasSubstr("role_info/1"), HasSubstr(message))))
        << info;
  }
  for (const char* ranks : {"[1, 2]", "{}", R"(["a", 1, 2, 3])", R"([1, 2, 3, "a"])"}) {
    StoreThread torchrun;
    TcpStoreClient("127.0.0.1", torchrun.port(), WaitLimit::within(30s))
        .set("/none/torchelastic/assigned_ranks/1", ranks);
    StaticRendezvous rendezvous(node(1, 2, torchrun.port()));
    EXPECT_THAT([&] { rendezvous.join(0, -1); }, ThrowsMessage<Error>(HasSubstr("assigned_ranks/1"))) << ranks;
  }
}

TEST(StaticRendezvous, ThePortNeverMoves) {
  const BoundSocket taken = open_listener("", {}, {});
  RendezvousOptions options = node(0, 2, taken.port);
  options.port.hard = false;
  EXPECT_THROW(StaticRendezvous{options}, PortInUse);
  options.port.port = 0;
  EXPECT_THAT([&] { StaticRendezvous{options}; }, ThrowsMessage<UsageError>(HasSubstr("--master_port")));
}

TEST(StaticRendezvous, ANodeRankOutsideTheJobIsAUsageError) {
  EXPECT_THAT([] { StaticRendezvous{node(2, 2, 29500)}; }, ThrowsMessage<UsageError>(HasSubstr("--node_rank=2")));
}

TEST(StaticRendezvous, WithoutAgentStoreRanksFollowFromTheNodeRank) {
  RendezvousOptions options = node(1, 3, 29500, 4);
  options.agent_store = AgentStore::kOff;
  StaticRendezvous rendezvous(options);
  const auto result = rendezvous.join(0, -1);
  EXPECT_EQ(result->base_global_rank, 4);
  EXPECT_EQ(result->global_world_size, 12);
  EXPECT_FALSE(result->use_agent_store);
  EXPECT_EQ(rendezvous.finish(true, -1), Ending::kTogether);
}

}  // namespace
}  // namespace cxxrun
