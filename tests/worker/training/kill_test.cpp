// Training survives SIGKILL at any moment: of its ranks, in dozens of attempts, and of cxxrun itself. What it has computed in the end is
// bit for bit what an undisturbed run computes. CXXRUN_TEST_SEED repeats a run's moments.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "tests/support/launched.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using cxxrun::read_file;
using cxxrun::testing::eventually;
using cxxrun::testing::Launched;
using testing::HasSubstr;
using testing::Not;
using Clock = std::chrono::steady_clock;

constexpr int kSteps = 4000;
#ifdef __SANITIZE_ADDRESS__
constexpr int kKills = 8;  // a program of LibTorch's size starts slowly under it
#else
constexpr int kKills = 36;
#endif

struct Kill : testing::Test {
  cxxrun::TempDir folder;
  uint64_t seed = std::getenv("CXXRUN_TEST_SEED") ? std::strtoull(std::getenv("CXXRUN_TEST_SEED"), nullptr, 10) : std::random_device()();
  std::mt19937_64 random{seed};

  void SetUp() override { std::cout << "CXXRUN_TEST_SEED=" << seed << std::endl; }

  int below(int limit) { return std::uniform_int_distribution(0, limit - 1)(random); }
  fs::path out(const std::string& name) const { return folder.path() / name; }

  // Two ranks, a checkpoint every 20 steps of which three stay, a line of metrics every step.
  std::vector<std::string> training(const std::string& name, const std::vector<std::string>& launcher = {}, const std::vector<std::string>& options = {}) const {
    std::vector<std::string> command{cxxrun::testing::cxxrun_path(), "--nproc_per_node=2", "--shutdown-timeout=5"};
    command.insert(command.end(), launcher.begin(), launcher.end());
    command.insert(command.end(), {cxxrun::testing::program_path("vla_worker"), "--policy.type=linear", "--dataset.root=synthetic:frames=61,state=4,action=3,episodes=4",
                                   "--training.batch_size=8", fmt::format("--training.steps={}", kSteps), "--training.log_freq=1", "--training.save_freq=20",
                                   "--training.keep_checkpoints=3", "--training.num_workers=1", cxxrun::testing::device_option(), "--output_dir=" + out(name).string()});
    command.insert(command.end(), options.begin(), options.end());
    return command;
  }
  std::unique_ptr<Launched> start(const std::vector<std::string>& command) const {
    return std::make_unique<Launched>(command, Launched::Options{.environment = {"OMP_NUM_THREADS=1"}, .patience = 300s});
  }

  void expect_same_training(const std::string& disturbed) {
    const auto undisturbed = start(training("undisturbed"));
    ASSERT_EQ(undisturbed->wait(), 0) << undisturbed->err();
    const auto expected = lines(out("undisturbed")), lived = lines(out(disturbed));
    ASSERT_EQ(expected.size(), static_cast<size_t>(kSteps));
    ASSERT_EQ(lived.size(), static_cast<size_t>(kSteps));
    for (size_t i = 0; i < lived.size(); ++i) {
      ASSERT_EQ(lived[i].at("step"), i + 1);
      for (const char* key : {"loss", "lr", "grad_norm", "sample_ids"}) {
        ASSERT_EQ(lived[i].value(key, nlohmann::json()), expected[i].value(key, nlohmann::json())) << key << " of step " << i + 1;
      }
    }
    for (const char* file : {"pretrained_model/model.safetensors", "training_state/optimizer.safetensors"}) {
      EXPECT_TRUE(read_file(out(disturbed) / "checkpoints/last" / file) == read_file(out("undisturbed") / "checkpoints/last" / file)) << file;
    }
    for (const auto& entry : fs::recursive_directory_iterator(out(disturbed))) {
      EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr(".tmp"))) << "left behind";
    }
  }

  static std::vector<nlohmann::json> lines(const fs::path& output_dir) {
    std::ifstream file(output_dir / "metrics.jsonl");
    std::vector<nlohmann::json> parsed;
    for (std::string line; std::getline(file, line);) parsed.push_back(nlohmann::json::parse(line));
    return parsed;
  }
};

std::vector<pid_t> ranks_of(const Launched& job) {
  std::vector<pid_t> ranks;
  for (const pid_t pid : job.marked()) {
    std::error_code gone;
    if (fs::read_symlink(fmt::format("/proc/{}/exe", pid), gone).filename() == "vla_worker") ranks.push_back(pid);
  }
  return ranks;
}

// Of files that another process writes.
int64_t steps_logged(const fs::path& output_dir) { return std::ranges::count(read_file(output_dir / "metrics.jsonl"), '\n'); }

uintmax_t size_of(const fs::path& path) {
  std::error_code missing;
  const uintmax_t size = fs::file_size(path, missing);
  return missing ? 0 : size;
}

TEST_F(Kill, KilledRanksLeaveTheTrainingAsIfNothingHadHappened) {
  const auto job = start(training("killed", {"--max-restarts=100"}));
  const fs::path metrics = out("killed") / "metrics.jsonl";
  int at_work = 0;
  for (int kills = 0; kills < kKills; ++kills) {
    std::vector<pid_t> ranks;
    ASSERT_TRUE(eventually([&] { return (ranks = ranks_of(*job)).size() == 2; })) << "after " << kills << " kills: " << job->err();
    if (below(4) == 0) {
      // While it starts, joins, loads.
      std::this_thread::sleep_for(std::chrono::milliseconds(below(600)));
    } else {
      // While it trains and saves.
      const uintmax_t before = size_of(metrics);
      ASSERT_TRUE(eventually([&] { return size_of(metrics) != before || job->marked().empty(); })) << job->err();
      std::this_thread::sleep_for(std::chrono::milliseconds(below(100)));
      ++at_work;
    }
    const pid_t victim = ranks[static_cast<size_t>(below(2))];
    ::kill(victim, SIGKILL);
    if (below(8) == 0) {
      for (const pid_t rank : ranks) ::kill(rank, SIGKILL);
    }
    ASSERT_TRUE(eventually([&] {
      const auto now = ranks_of(*job);
      return std::none_of(ranks.begin(), ranks.end(), [&](pid_t rank) { return std::find(now.begin(), now.end(), rank) != now.end(); });
    })) << "survivors of kill " << kills;
  }
  EXPECT_LT(steps_logged(out("killed")), kSteps) << "it was done before the last kill";
  EXPECT_EQ(job->wait(), 0) << job->err();
  EXPECT_TRUE(job->leaves_nothing());
  EXPECT_THAT(job->err() + job->out(), Not(HasSubstr("passed over"))) << "a torn checkpoint";
  std::cout << kKills << " kills, " << at_work << " of them while it trained" << std::endl;
  expect_same_training("killed");
}

TEST_F(Kill, CxxrunKilledDuringSavesLeavesNothingAndTheTrainingResumes) {
  const fs::path checkpoints = out("killed") / "checkpoints";
  const auto last = [&] {
    std::error_code missing;
    return fs::read_symlink(checkpoints / "last", missing);
  };
  // A hidden folder is a checkpoint on its way to the disk.
  const auto is_saving = [&] {
    std::error_code missing;
    for (fs::directory_iterator it(checkpoints, missing), end; !missing && it != end; it.increment(missing)) {
      if (it->path().filename().string().ends_with(".tmp")) return true;
    }
    return false;
  };
  for (int kills = 0; kills < 4; ++kills) {
    const fs::path before = last();
    const auto job = start(training("killed", {}, {"--resume=auto"}));
    const pid_t supervisor = job->supervisor();
    ASSERT_TRUE(eventually([&] { return last() != before; })) << job->err();
    const auto limit = Clock::now() + 30s;
    while (!is_saving() && Clock::now() < limit) std::this_thread::yield();
    ASSERT_LT(Clock::now(), limit) << job->err();
    ::kill(kills % 2 == 0 ? job->pid() : supervisor, SIGKILL);
    EXPECT_TRUE(job->leaves_nothing());
    ASSERT_LT(steps_logged(out("killed")), kSteps) << "it was done before it was killed";
  }
  // No kill need have hit the moment in which these are written.
  for (const char* file : {"config.yaml", "metrics.jsonl"}) std::ofstream(out("killed") / fmt::format("{}.tmp-AbCdEf", file)) << "half";
  const auto job = start(training("killed", {}, {"--resume=true"}));
  ASSERT_EQ(job->wait(), 0) << job->err();
  expect_same_training("killed");
}

}  // namespace
}  // namespace vla
