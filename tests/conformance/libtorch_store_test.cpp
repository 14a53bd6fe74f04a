// LibTorch's C++ TCPStore as client of our server, and our client against LibTorch's server.
#include <gmock/gmock.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdlib>
#include <future>

#include "common/scope_exit.hpp"
#include "launcher/rendezvous/single_node.hpp"
#include "launcher/rendezvous/tcp_store_client.hpp"
#include "tests/launcher/rendezvous/store_fixture.hpp"

namespace cxxrun {
namespace {

using testing::UnorderedElementsAre;
using namespace std::chrono_literals;
using Bytes = std::vector<uint8_t>;

Bytes bytes(std::string_view text) { return Bytes(text.begin(), text.end()); }

c10::intrusive_ptr<c10d::TCPStore> connect(int port, std::optional<size_t> workers = std::nullopt) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.numWorkers = workers;
  options.timeout = 30s;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

TEST(LibTorchClient, EveryOperationWorksOnOurServer) {
  StoreThread server;
  const auto store = connect(server.port());
  store->set("k", bytes("value"));
  EXPECT_EQ(store->get("k"), bytes("value"));
  EXPECT_EQ(store->add("n", 40), 40);
  EXPECT_EQ(store->add("n", 2), 42);
  EXPECT_TRUE(store->check({"k", "n"}));
  EXPECT_FALSE(store->check({"k", "missing"}));
  store->wait({"k", "n"}, 10s);
  EXPECT_THROW(store->wait({"missing"}, 10ms), std::exception);
  EXPECT_EQ(store->get("k"), bytes("value")) << "after a wait that was cancelled";

  EXPECT_EQ(store->compareSet("c", bytes("expected"), bytes("1")), bytes("expected"));
  EXPECT_EQ(store->compareSet("c", {}, bytes("1")), bytes("1"));
  EXPECT_EQ(store->compareSet("c", bytes("0"), bytes("2")), bytes("1"));
  EXPECT_EQ(store->compareSet("c", bytes("1"), bytes("2")), bytes("2"));

  store->append("a", bytes("12"));
  store->append("a", bytes("34"));
  store->multiSet({"x", "y"}, {bytes("X"), {}});
  EXPECT_EQ(store->multiGet({"y", "a", "x"}), (std::vector<Bytes>{{}, bytes("1234"), bytes("X")}));
  EXPECT_TRUE(store->hasExtendedApi());

  EXPECT_EQ(store->getNumKeys(), 6);
  EXPECT_THAT(store->listKeys(), UnorderedElementsAre("k", "n", "c", "a", "x", "y"));
  EXPECT_TRUE(store->deleteKey("x"));
  EXPECT_FALSE(store->deleteKey("x"));
  EXPECT_EQ(store->getNumKeys(), 5);

  store->queuePush("q", bytes("1"));
  store->queuePush("q", bytes("2"));
  EXPECT_EQ(store->queueLen("q"), 2);
  EXPECT_EQ(store->queuePop("q", true), bytes("1"));
  EXPECT_EQ(store->queuePop("q", false), bytes("2"));
  EXPECT_THROW(store->queuePop("q", false), std::exception);
  EXPECT_EQ(store->queueLen("q"), 0);
}

TEST(LibTorchClient, LargeAndSplitValuesArrive) {
  StoreThread server;
  const auto store = connect(server.port());
  const Bytes large(8 << 20, 0xA5);
  store->set("large", large);
  EXPECT_EQ(store->get("large"), large);
  store->_splitSet("split", bytes("in two segments"));
  EXPECT_EQ(store->get("split"), bytes("in two segments"));
}

TEST(LibTorchClient, SeveralClientsWaitForEachOther) {
  StoreThread server;
  constexpr int kClients = 8;
  std::vector<std::future<void>> clients;
  for (int rank = 0; rank < kClients; ++rank) {
    clients.push_back(std::async(std::launch::async, [&, rank] {
      const auto store = connect(server.port(), kClients);  // adds to "init/"
      store->set("rank" + std::to_string(rank), bytes("1"));
      std::vector<std::string> all;
      for (int other = 0; other < kClients; ++other) all.push_back("rank" + std::to_string(other));
      store->wait(all, 30s);
      EXPECT_EQ(store->queuePop("work", true), bytes("item"));
    }));
  }
  const auto producer = connect(server.port());
  for (int i = 0; i < kClients; ++i) producer->queuePush("work", bytes("item"));
  for (auto& client : clients) client.get();
  EXPECT_EQ(TcpStoreClient("127.0.0.1", server.port(), WaitLimit::within(10s)).get("init/"), std::to_string(kClients));
}

// C++ trainers make rank 0 the server whatever the launcher does; LibTorch then falls back to being a client.
TEST(LibTorchClient, ARankThatWantsToServeBecomesAClientOfTheAgentStore) {
  StoreThread server(StoreServerOptions{.address = ""});
  ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  ::setenv("MASTER_PORT", std::to_string(server.port()).c_str(), 1);
  const ScopeExit restore([] {
    ::unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    ::unsetenv("MASTER_PORT");
  });
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(server.port());
  options.isServer = true;
  options.numWorkers = 1;
  options.timeout = 30s;
  c10d::TCPStore("127.0.0.1", options).set("k", bytes("v"));
  EXPECT_EQ(connect(server.port())->get("k"), bytes("v"));
}

class OurClient : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(LibUv, OurClient, testing::Bool());

TEST_P(OurClient, WorksOnLibTorchsServer) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  options.useLibUV = GetParam();
  const auto server = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  TcpStoreClient store("127.0.0.1", server->getPort(), WaitLimit::within(30s));
  EXPECT_EQ(store.get("/k"), "");
  store.set("/k", "value");
  EXPECT_EQ(server->get("k"), bytes("value"));
  server->set("from_server", bytes("1"));
  store.wait({"/k", "/from_server"});
  EXPECT_EQ(store.get("/from_server"), "1");
  EXPECT_EQ(store.add("/n", 3), 3);
  EXPECT_EQ(store.compare_set("/c", "", "1"), "1");
  EXPECT_EQ(store.compare_set("/c", "2", "3"), "1");
  EXPECT_TRUE(store.remove("/c"));
  EXPECT_FALSE(store.check({"/c"}));
  store.set_limit(WaitLimit::within(10ms));
  EXPECT_THROW(store.wait({"/c"}), StoreTimeout);
  store.set_limit(WaitLimit::within(30s));
  EXPECT_EQ(store.get("/k"), "value");
}

TEST(WithoutAgentStore, RankZeroServesOnTheReservedPort) {
  for (const bool libuv : {true, false}) {
    SingleNode rendezvous({.agent_store = AgentStore::kOff});
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(rendezvous.join(0, -1)->master_port);
    options.isServer = true;
    options.useLibUV = libuv;
    const auto rank0 = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    rank0->set("k", bytes("v"));
    EXPECT_EQ(connect(options.port)->get("k"), bytes("v"));
  }
}

}  // namespace
}  // namespace cxxrun
