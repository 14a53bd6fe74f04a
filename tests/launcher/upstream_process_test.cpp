// What torchrun's own tests check of its launcher and can be asked of another program, where no other test here does: how
// many ranks start, from which spelling, with which numbers.
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "launcher/devices/device_list.hpp"
#include "launcher/rendezvous/listen_socket.hpp"
#include "tests/support/launched.hpp"

namespace cxxrun {
namespace {

namespace fs = std::filesystem;
using testing::count;
using testing::cxxrun_path;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Launched;
using testing::program_path;
using testing::shell_ranks;
using Strings = std::vector<std::string>;

int free_port() { return open_listener("", {}, {}).port; }

// A shell program that leaves a file named by its rank, and a Python one that does the same.
class Upstream : public ::testing::Test {
 protected:
  Upstream() {
    write("touch.sh", "#!/bin/sh\n[ \"$PARENT\" = kept ] && : > \"$1/$RANK\"\n");
    write("touch_rank.py",
          "import os, sys\n"
          "names = '''LOCAL_RANK RANK GROUP_RANK ROLE_RANK ROLE_NAME LOCAL_WORLD_SIZE WORLD_SIZE ROLE_WORLD_SIZE\n"
          "MASTER_ADDR MASTER_PORT TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID\n"
          "TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_ERROR_FILE TORCH_NCCL_ASYNC_ERROR_HANDLING OMP_NUM_THREADS "
          "PARENT'''.split()\n"
          "missing = [name for name in names if name not in os.environ]\n"
          "assert not missing, missing\n"
          "open(os.path.join(sys.argv[1], os.environ['RANK']), 'w').close()\n");
    fs::create_directory(folder_.path() / "touched");
  }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path() / name) << text;
    fs::permissions(folder_.path() / name, fs::perms::owner_all);
  }

  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  // Runs cxxrun with `options` and a program of the folder; the ranks that left a file.
  std::set<std::string> ranks_of(Strings options, const std::string& program, Strings environment = {}) {
    options.insert(options.begin(), cxxrun_path());
    options.insert(options.end(), {program, path("touched")});
    environment.push_back("PARENT=kept");
    Launched job(options, {.environment = environment, .working_directory = folder_.path()});
    status_ = job.wait();
    error_ = job.err();
    std::set<std::string> ranks;
    for (const auto& entry : fs::directory_iterator(path("touched"))) ranks.insert(entry.path().filename());
    for (const std::string& rank : ranks) fs::remove(folder_.path() / "touched" / rank);
    return ranks;
  }

  TempDir folder_;
  int status_ = -1;
  std::string error_;
};

const std::set<std::string> kOne = {"0"}, kFour = {"0", "1", "2", "3"};

TEST_F(Upstream, EachWayToNameTheProgramStartsItOnceARank) {
  const std::pair<Strings, std::string> kWays[] = {
      {{"--nproc-per-node=4", "--monitor-interval=1"}, path("touch_rank.py")},
      {{"--nproc_per_node", "4", "--master-addr=localhost", "--master-port=0", "--node-rank=0"}, path("touch_rank.py")},
      {{"--nproc-per-node=4", "-m"}, "touch_rank"},
      {{"--nproc-per-node=4", "--run-path"}, path("touch_rank.py")},
      {{"--nproc-per-node=4", "--no-python"}, "./touch.sh"},
      {{"--nproc-per-node=4", "--standalone"}, path("touch.sh")},
      {{"--nproc-per-node=4", "--logs_specs=default"}, path("touch.sh")},
      {{"--nproc-per-node=4", "--nnodes=1:2", "--rdzv-backend=c10d",
        fmt::format("--rdzv-endpoint=localhost:{}", free_port()),
        "--rdzv-conf='join_timeout=5,last_call_timeout=1,timeout=5'"},
       path("touch.sh")},
  };
  for (const auto& [options, program] : kWays) {
    EXPECT_EQ(ranks_of(options, program), kFour) << ::testing::PrintToString(options) << error_;
    EXPECT_EQ(status_, 0);
  }
}

TEST_F(Upstream, WithoutANumberThereIsOneRank) { EXPECT_EQ(ranks_of({"--no-python"}, "./touch.sh"), kOne); }

TEST_F(Upstream, ModuleAndNoPythonExcludeEachOther) {
  EXPECT_THAT(ranks_of({"--no-python", "--module"}, "./touch.sh"), IsEmpty());
  EXPECT_EQ(status_, 2);
}

TEST_F(Upstream, VariablesStandForOptions) {
  Strings variables = {"PET_NNODES=1",           "PET_NPROC_PER_NODE=4",  "PET_RDZV_ID=7", "PET_NO_PYTHON=1",
                       "PET_MONITOR_INTERVAL=1", "PET_START_METHOD=fork", "PET_MODULE=0"};
  EXPECT_EQ(ranks_of({}, "./touch.sh", variables), kFour) << error_;
  variables.back() = "PET_MODULE=1";
  EXPECT_THAT(ranks_of({}, "./touch.sh", variables), IsEmpty());
  EXPECT_EQ(status_, 2);
}

TEST_F(Upstream, AutoWithoutAGpuAndCpuStartARankForEachCpu) {
  std::set<std::string> expected;
  for (int rank = 0; rank < count_usable_cpus(); ++rank) expected.insert(std::to_string(rank));
  for (const char* number : {"--nproc-per-node=auto", "--nproc-per-node=cpu"}) {
    EXPECT_EQ(ranks_of({"--no-python", number}, "./touch.sh", {"CXXRUN_FAKE_GPUS=0", "CUDA_VISIBLE_DEVICES"}),
              expected);
  }
}

TEST_F(Upstream, AutoAndGpuStartARankForEachGpu) {
  for (const char* number : {"--nproc-per-node=auto", "--nproc-per-node=gpu"}) {
    EXPECT_EQ(ranks_of({"--no-python", number}, "./touch.sh", {"CXXRUN_FAKE_GPUS=4", "CUDA_VISIBLE_DEVICES"}), kFour);
  }
}

TEST_F(Upstream, UnknownWordsStartNothing) {
  for (const char* option :
       {"--nproc-per-node=unknown", "--nproc-per-node=xpu", "--logs-specs=none", "--rdzv-backend=none"}) {
    EXPECT_THAT(ranks_of({"--no-python", option}, "./touch.sh"), IsEmpty()) << option;
    EXPECT_EQ(status_, 2) << option;
  }
}

TEST_F(Upstream, TheOldLaunchersWithUseEnvAddNoArgument) {
  write("show.sh", "#!/bin/sh\necho \"local $LOCAL_RANK: $*\"\n");
  Launched with({program_path("cxxlaunch"), "--use_env", "--nproc_per_node=2", "--no_python", path("show.sh"), "--x"});
  EXPECT_EQ(with.wait(), 0) << with.err();
  EXPECT_THAT(with.out(), ::testing::AllOf(HasSubstr("local 0: --x\n"), HasSubstr("local 1: --x\n")));
  Launched without({program_path("cxxlaunch"), "--nproc_per_node=2", path("show.sh"), "--x"});
  EXPECT_EQ(without.wait(), 0) << without.err();
  EXPECT_THAT(without.out(),
              ::testing::AllOf(HasSubstr("local 0: --local-rank=0 --x\n"), HasSubstr("local 1: --local-rank=1 --x\n")));
}

TEST_F(Upstream, AbbreviatedOptionsRedirectAndTeeWithTheUsersPrefix) {
  Launched job(
      shell_ranks(2, "echo creating", {"--redirect=3", "--tee=3", "--log-line-prefix-template=[rank${rank}]: "}),
      {.environment = {"TMPDIR=" + folder_.path().string()}});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.out(), ::testing::AllOf(HasSubstr("[rank0]: creating\n"), HasSubstr("[rank1]: creating\n")));
}

TEST_F(Upstream, ExitCode138IsPassedOn) {
  Launched job(shell_ranks(2, "[ $RANK = 1 ] && exit 138; sleep 100"));
  EXPECT_EQ(job.wait(), 138);
}

TEST_F(Upstream, RanksHalfOfWhichAlwaysFailUseUpTheRestarts) {
  Launched job(shell_ranks(4, "echo attempt $TORCHELASTIC_RESTART_COUNT; exit $((RANK % 2))", {"--max-restarts=2"}));
  EXPECT_EQ(job.wait(), 1);
  EXPECT_GE(count(job.out(), "attempt 2\n"), 2U) << job.out();
  EXPECT_EQ(count(job.out(), "attempt 3\n"), 0U);
  EXPECT_THAT(job.err(), HasSubstr("failed 3 times"));
}

TEST_F(Upstream, ARankThatIsKilledOnceIsStartedAgainAndTheJobEndsWell) {
  Launched job(shell_ranks(
      2, "[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && kill -KILL $$; echo attempt $TORCHELASTIC_RESTART_COUNT",
      {"--max-restarts=3"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(count(job.out(), "attempt 1\n"), 2U);
}

// Nodes of roles and sizes as upstream has them: global ranks and the ranks of each role are consecutive in node order.
TEST_F(Upstream, NodesOfDifferentRolesAndSizesNumberTheirRanks) {
  struct Node {
    const char* role;
    int ranks;
  };
  constexpr Node kNodes[] = {{"master", 8}, {"trainer", 1}, {"trainer", 2}, {"trainer", 3},
                             {"ps", 4},     {"ps", 5},      {"ps", 2}};
  const std::map<std::string, int> role_sizes = {{"master", 8}, {"trainer", 6}, {"ps", 11}};
  const std::string port = fmt::format("--master-port={}", free_port());
  std::vector<std::unique_ptr<Launched>> nodes;
  for (const Node& node : kNodes) {
    nodes.push_back(std::make_unique<Launched>(shell_ranks(
        node.ranks, "echo $LOCAL_RANK: $RANK of $WORLD_SIZE, $ROLE_NAME $ROLE_RANK of $ROLE_WORLD_SIZE",
        {"--nnodes=7", fmt::format("--node-rank={}", nodes.size()), port, fmt::format("--role={}", node.role)})));
  }
  int rank = 0;
  std::map<std::string, int> role_rank;
  for (size_t i = 0; i < nodes.size(); ++i) {
    EXPECT_EQ(nodes[i]->wait(), 0) << nodes[i]->err();
    for (int local_rank = 0; local_rank < kNodes[i].ranks; ++local_rank) {
      const std::string role = kNodes[i].role;
      EXPECT_THAT(nodes[i]->out(), HasSubstr(fmt::format("{}: {} of 25, {} {} of {}\n", local_rank, rank++, role,
                                                         role_rank[role]++, role_sizes.at(role))));
    }
  }
}

}  // namespace
}  // namespace cxxrun
