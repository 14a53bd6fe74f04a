// Ranks see under cxxrun what they see under a real torchrun: every variable and every argument, for many command lines. The
// differences that are meant are the rows below; launcher/README.md repeats them.
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "tests/support/launched.hpp"

namespace cxxrun {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;
using testing::Launched;

struct Difference {
  const char* name;
  const char* torchrun;  // patterns of the values; nullptr = not set
  const char* cxxrun;
};

// Tried in order, and only where the two differ.
constexpr Difference kMeant[] = {
    {"CXXRUN_CONTROL_FD", nullptr, "[0-9]+"},
    {"CXXRUN_LAUNCH_TIME", nullptr, "[0-9]+"},
    {"OMP_NUM_THREADS", "1", "[0-9]+"},  // usable CPUs divided by ranks
    {"OMP_NUM_THREADS", nullptr, "[0-9]+"},  // for one rank too
    {"MASTER_PORT", "[0-9]+", "[0-9]+"},  // a free one, of either launcher
    {"MASTER_ADDR", ".+", "127\\.0\\.0\\.1"},  // c10d: the host's name, which has to resolve
    {"TORCHELASTIC_RUN_ID", "none|[0-9a-f-]{36}", "[0-9a-f]{8}-[0-9a-f]{8}"},  // made up on one node
    {"TORCHELASTIC_ERROR_FILE", ".*/attempt_([0-9]+/[0-9]+)/error\\.json", ".*/attempt_([0-9]+/[0-9]+)/error\\.json"},
    {"LC_CTYPE", "C.UTF-8", nullptr},  // torchrun's own Python sets it
};

// Of shells and of this test.
const std::set<std::string> kNoise = {"_", "PWD", "OLDPWD", "SHLVL", "CXXRUN_TEST_MARKER", "DUMP_FOLDER"};

struct Case {
  const char* name;
  Strings options;
  Strings environment = {};
  std::string program = "./dump.sh";
  Strings arguments = {};
  int ranks = 1;
  std::set<std::string> equal = {};  // chosen by the user: no difference is meant
  bool is_command = true;  // not a function of torchrun's own process
  bool is_launch = false;  // torch.distributed.launch and cxxlaunch
};

void PrintTo(const Case& job, std::ostream* out) { *out << job.name; }

class Environment : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!fs::exists(CONFORMANCE_PYTHON))
      GTEST_SKIP() << "no Python with torch at " CONFORMANCE_PYTHON "; set CXXRUN_PYTHON";
    const std::string script =
        "#!/bin/sh\nenv -0 > $DUMP_FOLDER/$RANK.env\nprintf '%s\\0' \"$@\" > $DUMP_FOLDER/$RANK.args\n"
        "cat /proc/$$/cmdline > $DUMP_FOLDER/$RANK.command\n"
        "[ \"$TORCHELASTIC_RESTART_COUNT\" = \"$TORCHELASTIC_MAX_RESTARTS\" ] || exit 1\n";
    std::ofstream(folder_.path() / "dump.sh") << script;
    fs::permissions(folder_.path() / "dump.sh", fs::perms::owner_all);
    fs::copy_file(PROJECT_DIR "/tests/conformance/dump_environment.py", folder_.path() / "dump_environment.py");
  }

  struct Seen {
    Variables variables;
    Strings arguments;
    Strings command;
  };
  std::map<int, Seen> run(const Strings& launcher) {
    const Case& job = GetParam();
    const fs::path dump = folder_.path() / "dump";
    fs::remove_all(dump);
    fs::create_directory(dump);
    Strings command = launcher;
    command.insert(command.end(), job.options.begin(), job.options.end());
    command.push_back(job.program);
    command.insert(command.end(), job.arguments.begin(), job.arguments.end());
    Launched::Options options{.environment = job.environment, .working_directory = folder_.path()};
    for (const char* entry : {"OMP_NUM_THREADS", "MASTER_PORT", "PYTHON_EXEC=" CONFORMANCE_PYTHON})
      options.environment.insert(options.environment.begin(), entry);
    options.environment.push_back("DUMP_FOLDER=" + dump.string());
    Launched launched(command, options);
    EXPECT_EQ(launched.wait(), 0) << launched.err();
    std::map<int, Seen> seen;
    for (const auto& entry : fs::directory_iterator(dump)) {
      Seen& rank = seen[std::stoi(entry.path().filename())];
      for (const std::string& text : split(entry.path())) {
        const size_t equals = text.find('=');
        if (entry.path().extension() == ".args") {
          rank.arguments.push_back(text);
        } else if (entry.path().extension() == ".command") {
          rank.command.push_back(text);
        } else if (!kNoise.contains(text.substr(0, equals))) {
          rank.variables[text.substr(0, equals)] = text.substr(equals + 1);
        }
      }
    }
    return seen;
  }

  static Strings split(const fs::path& file) {
    Strings texts;
    std::ifstream in(file, std::ios::binary);
    for (std::string text; std::getline(in, text, '\0');) texts.push_back(text);
    return texts;
  }

 private:
  TempDir folder_;
};

bool is_meant(const std::string& name, const std::string* torchrun, const std::string* cxxrun) {
  for (const Difference& row : kMeant) {
    if (name != row.name || !torchrun != !row.torchrun || !cxxrun != !row.cxxrun) continue;
    std::smatch first, second;
    if (torchrun && !std::regex_match(*torchrun, first, std::regex(row.torchrun))) continue;
    if (cxxrun && !std::regex_match(*cxxrun, second, std::regex(row.cxxrun))) continue;
    if (first.size() > 1 && first[1] != second[1]) continue;  // what is captured has to be the same
    return true;
  }
  return false;
}

TEST_P(Environment, IsThatOfTorchrun) {
  const bool is_launch = GetParam().is_launch;
  auto theirs = run({CONFORMANCE_PYTHON, "-m", is_launch ? "torch.distributed.launch" : "torch.distributed.run"});
  auto ours = run({testing::program_path(is_launch ? "cxxlaunch" : "cxxrun")});
  ASSERT_EQ(theirs.size(), static_cast<size_t>(GetParam().ranks));
  ASSERT_EQ(ours.size(), theirs.size());
  for (auto& [rank, seen] : theirs) {
    EXPECT_EQ(ours[rank].arguments, seen.arguments) << "rank " << rank;
    if (GetParam().is_command) {
      EXPECT_EQ(ours[rank].command, seen.command) << "rank " << rank;
    }
    std::set<std::string> names;
    for (const Variables* variables : {&seen.variables, &ours[rank].variables}) {
      for (const auto& [name, value] : *variables) names.insert(name);
    }
    for (const std::string& name : names) {
      const auto value = [&](Variables& variables) { return variables.contains(name) ? &variables[name] : nullptr; };
      const std::string *torchrun = value(seen.variables), *cxxrun = value(ours[rank].variables);
      if (torchrun && cxxrun && *torchrun == *cxxrun) continue;
      EXPECT_TRUE(!GetParam().equal.contains(name) && is_meant(name, torchrun, cxxrun))
          << "rank " << rank << ": " << name << " is " << (torchrun ? *torchrun : "unset") << " under torchrun, "
          << (cxxrun ? *cxxrun : "unset") << " under cxxrun";
    }
  }
}

const Case kCases[] = {
    {.name = "OneRank", .options = {"--no-python"}},
    {.name = "TwoRanksWithArguments",
     .options = {"--no-python", "--nproc-per-node=2"},
     .arguments = {"--", "${local_rank}", "$$", "a  b", "", "--nproc-per-node=3", "$HOME", "\xff"},
     .ranks = 2},
    {.name = "Standalone", .options = {"--standalone", "--no_python", "--nproc_per_node", "2"}, .ranks = 2},
    {.name = "MasterAddressAndPort",
     .options = {"--no-python", "--master-addr=localhost", "--master-port=29871", "--nproc-per-node=2"},
     .environment = {"OMP_NUM_THREADS=3"},
     .ranks = 2,
     .equal = {"MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "TORCHELASTIC_RUN_ID"}},
    {.name = "StaticEndpoint",
     .options = {"--no-python", "--rdzv-endpoint=127.0.0.1:29872", "--rdzv-id=job"},
     .equal = {"MASTER_PORT", "TORCHELASTIC_RUN_ID"}},
    {.name = "C10dEndpoint",
     .options = {"--no-python", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-id=job",
                 "--local-addr=127.0.0.1"},
     .equal = {"MASTER_ADDR", "TORCHELASTIC_RUN_ID"}},
    {.name = "RoleAndRestarts",
     .options = {"--no-python", "--role=trainer", "--max-restarts=1", "--nproc-per-node=2", "--monitor-interval=0.05"},
     .ranks = 2},
    {.name = "Module", .options = {"-m"}, .program = "dump_environment", .arguments = {"--lr", "1"}},
    {.name = "PythonScript",
     .options = {"--nproc-per-node=2"},
     .program = "dump_environment.py",
     .arguments = {"-h"},
     .ranks = 2},
    {.name = "RunPath",
     .options = {"--run-path"},
     .program = "dump_environment.py",
     .arguments = {"$local_rank"},
     .is_command = false},
    {.name = "TorchDistributedLaunch",
     .options = {"--nproc_per_node=2", "--master_port=29873"},
     .program = "dump_environment.py",
     .arguments = {"--lr", "1"},
     .ranks = 2,
     .equal = {"MASTER_PORT"},
     .is_launch = true},
    {.name = "PetVariables",
     .options = {},
     .environment = {"PET_NPROC_PER_NODE=2", "PET_NO_PYTHON=1", "PET_RDZV_ID=pet", "OMP_NUM_THREADS="},
     .ranks = 2},
    {.name = "VirtualLocalRank",
     .options = {"--no-python", "--virtual-local-rank", "--nproc-per-node=2"},
     .environment = {"CUDA_VISIBLE_DEVICES=3, 5"},
     .arguments = {"$local_rank"},
     .ranks = 2},
    {.name = "VirtualLocalRankWithoutAList",
     .options = {"--no-python", "--virtual-local-rank", "--nproc-per-node=2"},
     .environment = {"CUDA_VISIBLE_DEVICES"},
     .ranks = 2},
    {.name = "SignalsAndNccl",
     .options = {"--no-python", "--signals-to-handle=SIGTERM,SIGUSR1"},
     .environment = {"TORCH_NCCL_ASYNC_ERROR_HANDLING=0", "CUDA_VISIBLE_DEVICES=3,GPU-1", "RANK=7", "LOCAL_RANK=7"}},
    {.name = "LogFolder", .options = {"--no-python", "--log-dir=logs", "--redirects=3"}},
};

INSTANTIATE_TEST_SUITE_P(CommandLines, Environment, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace cxxrun
