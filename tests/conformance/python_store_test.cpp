// Python's torch.distributed as client of our server, and a job shared by a real torchrun and us. The Python programs
// lie beside this file.
#include <gmock/gmock.h>

#include <cstdio>
#include <filesystem>
#include <future>

#include "launcher/rendezvous/static_rendezvous.hpp"
#include "tests/launcher/rendezvous/store_fixture.hpp"

namespace cxxrun {
namespace {

using namespace std::chrono_literals;

struct Finished {
  int status = -1;
  std::string output;
};

std::future<Finished> run_python(const std::string& environment, const std::string& arguments) {
  return std::async(std::launch::async, [=] {
    Finished finished;
    FILE* pipe = ::popen(fmt::format("cd '{}/tests/conformance' && env {} '{}' {} 2>&1", PROJECT_DIR, environment,
                                     CONFORMANCE_PYTHON, arguments)
                             .c_str(),
                         "r");
    char buffer[4096];
    while (const size_t count = std::fread(buffer, 1, sizeof buffer, pipe)) finished.output.append(buffer, count);
    finished.status = ::pclose(pipe);
    return finished;
  });
}

std::string rank_environment(int64_t rank, int64_t world_size, int port) {
  return fmt::format(
      "RANK={} LOCAL_RANK=0 WORLD_SIZE={} MASTER_ADDR=127.0.0.1 MASTER_PORT={} TORCHELASTIC_USE_AGENT_STORE=True "
      "TORCHELASTIC_RESTART_COUNT=0",
      rank, world_size, port);
}

class PythonClient : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(CONFORMANCE_PYTHON))
      GTEST_SKIP() << "no Python with torch at " CONFORMANCE_PYTHON "; set CXXRUN_PYTHON";
  }
};

void expect_success(std::future<Finished>& process, const std::string& output) {
  const Finished finished = process.get();
  EXPECT_EQ(finished.status, 0) << finished.output;
  EXPECT_THAT(finished.output, testing::HasSubstr(output));
}

TEST_F(PythonClient, EveryOperationWorksOnOurServer) {
  StoreThread server;
  auto process = run_python("", fmt::format("store_operations.py {}", server.port()));
  expect_success(process, "all operations work");
}

TEST_F(PythonClient, TwoGlooRanksReduceThroughTheAgentStore) {
  StoreThread server;
  auto first = run_python(rank_environment(0, 2, server.port()), "all_reduce.py");
  auto second = run_python(rank_environment(1, 2, server.port()), "all_reduce.py");
  expect_success(first, "rank 0 of 2: sum 3");
  expect_success(second, "rank 1 of 2: sum 3");
}

int free_port() { return open_listener("", {}, {}).port; }

// One node of the job is ours with one rank, the other is torchrun's with one rank.
void run_with_torchrun(int64_t our_node) {
  const int port = free_port();
  auto torchrun = run_python(
      "OMP_NUM_THREADS=1",
      fmt::format("-m torch.distributed.run --nnodes=2 --node-rank={} --nproc-per-node=1 --master-addr=127.0.0.1 "
                  "--master-port={} all_reduce.py",
                  1 - our_node, port));
  StaticRendezvous rendezvous(
      {.nodes = 2, .node_rank = our_node, .port = {port, true}, .join_timeout = 60s, .exit_barrier_timeout = 60s});
  const auto joined = rendezvous.join(0, -1);
  ASSERT_TRUE(joined.has_value());
  EXPECT_EQ(joined->base_global_rank, our_node);
  EXPECT_EQ(joined->global_world_size, 2);
  auto rank = run_python(rank_environment(joined->base_global_rank, joined->global_world_size, joined->master_port),
                         "all_reduce.py");
  while (rank.wait_for(0s) != std::future_status::ready) {
    pollfd fds{rendezvous.fd(), POLLIN, 0};
    if (::poll(&fds, 1, 50) > 0) rendezvous.on_ready();
  }
  expect_success(rank, fmt::format("rank {} of 2: sum 3", our_node));
  EXPECT_EQ(rendezvous.finish(true, -1), Ending::kTogether);
  expect_success(torchrun, fmt::format("rank {} of 2: sum 3", 1 - our_node));
}

TEST_F(PythonClient, ATorchrunNodeJoinsOurNodeZero) { run_with_torchrun(0); }

TEST_F(PythonClient, OurNodeJoinsTorchrunsNodeZero) { run_with_torchrun(1); }

}  // namespace
}  // namespace cxxrun
