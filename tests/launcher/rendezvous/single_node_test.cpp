#include "launcher/rendezvous/single_node.hpp"

#include <gmock/gmock.h>

#include "common/error.hpp"
#include "launcher/rendezvous/tcp_store_client.hpp"
#include "tests/launcher/rendezvous/store_fixture.hpp"

namespace cxxrun {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using namespace std::chrono_literals;

RendezvousOptions options(PortRequest port = {}) { return {.local_world_size = 3, .port = port}; }

// Runs `use` with a connected client while the rendezvous is served, as the launcher's event loop does.
template <class F>
void with_client(Rendezvous& rendezvous, int port, F use) {
  const UniqueFd done(::eventfd(0, 0));
  std::thread client([&] {
    TcpStoreClient store("127.0.0.1", port, WaitLimit::within(20s));
    use(store);
    ::eventfd_write(done.get(), 1);
  });
  while (true) {
    pollfd fds[] = {{rendezvous.fd(), POLLIN, 0}, {done.get(), POLLIN, 0}};
    ::poll(fds, 2, -1);
    if (fds[1].revents) break;
    rendezvous.on_ready();
  }
  client.join();
}

bool refuses_connections(int port) {
  try {
    TcpStoreClient("127.0.0.1", port, WaitLimit::within(0ms));
  } catch (const StoreTimeout&) {
    return true;
  }
  return false;
}

TEST(SingleNode, AssignsAllRanksToTheOneNode) {
  SingleNode rendezvous(options());
  const auto result = rendezvous.join(0, -1);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->group_rank, 0);
  EXPECT_EQ(result->group_world_size, 1);
  EXPECT_EQ(result->base_global_rank, 0);
  EXPECT_EQ(result->global_world_size, 3);
  EXPECT_EQ(result->role_world_size, 3);
  EXPECT_EQ(result->master_addr, "127.0.0.1");
  EXPECT_GT(result->master_port, 0);
  EXPECT_TRUE(result->use_agent_store);
  EXPECT_EQ(rendezvous.finish(true, -1), Ending::kTogether);
}

TEST(SingleNode, EveryAttemptHasAnEmptyStoreAtANewPort) {
  SingleNode rendezvous(options());
  const int first = rendezvous.join(0, -1)->master_port;
  with_client(rendezvous, first, [](TcpStoreClient& store) { store.add("/gloo", 1); });
  const int second = rendezvous.join(1, -1)->master_port;
  EXPECT_NE(first, second);
  EXPECT_TRUE(refuses_connections(first));
  with_client(rendezvous, second, [](TcpStoreClient& store) { EXPECT_FALSE(store.check({"/gloo"})); });
}

TEST(SingleNode, AnAskedPortStaysAndItsStoreIsEmptied) {
  const int port = open_listener("127.0.0.1", {}, {}).port;
  for (const bool hard : {true, false}) {
    SingleNode rendezvous(options({port, hard}));
    EXPECT_EQ(rendezvous.join(0, -1)->master_port, port);
    with_client(rendezvous, port, [](TcpStoreClient& store) { store.add("/gloo", 1); });
    EXPECT_EQ(rendezvous.join(1, -1)->master_port, port);
    with_client(rendezvous, port, [](TcpStoreClient& store) { EXPECT_FALSE(store.check({"/gloo"})); });
  }
}

TEST(SingleNode, AHardPortInUseIsAnErrorASoftOneMoves) {
  const BoundSocket taken = open_listener("127.0.0.1", {}, {});
  EXPECT_THROW(SingleNode(options({taken.port, true})), PortInUse);
  std::string line;
  RendezvousOptions soft = options({taken.port, false});
  soft.log = [&](const std::string& text) { line = text; };
  SingleNode rendezvous(soft);
  const int port = rendezvous.join(0, -1)->master_port;
  EXPECT_NE(port, taken.port);
  EXPECT_THAT(line, HasSubstr(std::to_string(port)));
}

TEST(SingleNode, WithoutAgentStoreItOnlyHoldsThePort) {
  RendezvousOptions off = options();
  off.agent_store = AgentStore::kOff;
  SingleNode rendezvous(off);
  const auto result = rendezvous.join(0, -1);
  EXPECT_FALSE(result->use_agent_store);
  EXPECT_EQ(rendezvous.fd(), -1);
  EXPECT_TRUE(refuses_connections(result->master_port));
  EXPECT_EQ(open_listener("", {result->master_port, true}, {}).port, result->master_port)
      << "rank 0 must be able to listen";
  EXPECT_NE(rendezvous.join(1, -1)->master_port, result->master_port);
}

TEST(SingleNode, RefusesSeveralNodes) {
  RendezvousOptions two = options();
  two.nodes = 2;
  EXPECT_THAT([&] { SingleNode rendezvous(two); }, ThrowsMessage<UsageError>(HasSubstr("--nnodes=1")));
}

TEST(RendezvousRegistry, MakesByNameAndNamesTheKnownOnes) {
  EXPECT_NE(make_rendezvous("single_node", options()), nullptr);
  EXPECT_THAT([] { make_rendezvous("statik", options()); },
              ThrowsMessage<UsageError>(testing::AllOf(HasSubstr("'statik'"), HasSubstr("did you mean 'static'"))));
}

}  // namespace
}  // namespace cxxrun
