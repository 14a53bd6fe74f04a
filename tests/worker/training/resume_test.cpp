// A training that is stopped, killed or restarted goes on as if nothing had happened, on any number of ranks.
#include <fmt/format.h>

#include "tests/worker/training/support.hpp"

namespace vla {
namespace {

using cxxrun::testing::device_option;
using cxxrun::testing::eventually;
using cxxrun::testing::Launched;
using namespace std::chrono_literals;

// The processes of a job, by rank.
std::map<int, pid_t> ranks_of(const Launched& job) {
  std::map<int, pid_t> ranks;
  for (const pid_t pid : job.marked()) {
    std::error_code gone;
    if (std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid), gone).filename() != "vla_worker") continue;
    std::ifstream environment(fmt::format("/proc/{}/environ", pid));
    for (std::string variable; std::getline(environment, variable, '\0');) {
      if (variable.starts_with("RANK=")) ranks[std::stoi(variable.substr(5))] = pid;
    }
  }
  return ranks;
}

struct Resume : TrainingTest {
  Words float64(const std::string& name, const Words& options = {}) { return small_act(out(name), Words{"--training.dtype=float64"} + options); }
};

TEST_F(Resume, ContinuesAtTheExactSampleOnAnotherWorldSize) {
  run(1, float64("straight"));
  run(2, float64("parts", {"--training.steps=9"}));
  const auto& second = run(3, {"--resume=" + (out("parts") / "checkpoints" / "last").string(), "--training.steps=20", device_option()});
  EXPECT_THAT(second.out(), testing::HasSubstr("after step 9 of 20 (saved by 2 ranks, now 3)"));
  EXPECT_LE(largest_difference(weights(out("straight")), weights(out("parts"))), 1e-10);
  const auto lines = metrics(out("parts"));
  ASSERT_EQ(lines.size(), 20);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i].at("step"), i + 1);
}

TEST_F(Resume, AtEveryStepOnAnotherWorldSizeGivesTheSameSamplesRatesAndLosses) {
  const Words options{"--policy.type=linear", "--dataset.root=synthetic:frames=61,state=4,action=3,episodes=4", "--training.dtype=float64",
                      "--training.batch_size=8", "--training.steps=20", "--training.log_freq=1", "--training.save_freq=1", "--training.num_workers=1",
                      "--optimizer.lr=1e-2", "--scheduler.type=cosine", "--scheduler.warmup_steps=5", "--ema.enable", "--logging.sample_ids",
                      "--device=cpu"};
  run(2, options + Words{"--output_dir=" + out("straight").string()});
  const auto straight = metrics(out("straight"));
  ASSERT_EQ(straight.size(), 20);
  for (size_t step = 1; step < 20; ++step) {
    const std::string name = fmt::format("from_{}", step);
    run(step % 4 == 1 ? 3 : 0, {fmt::format("--resume={}/checkpoints/{:06}", out("straight").string(), step), "--training.save_freq=0",
                                "--device=cpu", "--output_dir=" + out(name).string()});
    const auto rest = metrics(out(name));
    ASSERT_EQ(rest.size(), 20 - step);
    for (size_t i = 0; i < rest.size(); ++i) {
      const auto& expected = straight[step + i];
      EXPECT_EQ(rest[i].at("step"), expected.at("step"));
      EXPECT_EQ(rest[i].at("sample_ids"), expected.at("sample_ids")) << name;
      EXPECT_EQ(rest[i].at("lr"), expected.at("lr")) << name;
      EXPECT_NEAR(rest[i].at("loss").get<double>(), expected.at("loss").get<double>(), 1e-10) << name;
    }
  }
}

TEST_F(Resume, ASignalSavesTheSameStepOnAllRanksAndStopsWithItsNumber) {
  Launched stopped(worker(2, float64("stopped", {"--training.steps=2000"})));
  ASSERT_TRUE(stopped.waits_for("step 3/2000"));
  stopped.send(SIGTERM);
  EXPECT_EQ(stopped.wait(), 128 + SIGTERM) << stopped.err();
  EXPECT_TRUE(stopped.leaves_nothing());
  const auto state = out("stopped") / "checkpoints" / "last" / "training_state" / "training_state.json";
  const int64_t step = nlohmann::json::parse(std::ifstream(state)).at("step").get<int64_t>();
  ASSERT_GE(step, 3);

  run(1, float64("straight", {fmt::format("--training.steps={}", step + 3)}));
  run(1, float64("stopped", {"--resume=true", fmt::format("--training.steps={}", step + 3)}));
  EXPECT_LE(largest_difference(weights(out("straight")), weights(out("stopped"))), 1e-10);
}

TEST_F(Resume, ARestartedAttemptContinuesByItself) {
  run(2, float64("straight", {"--training.steps=30"}));
  const Words launcher{cxxrun::testing::cxxrun_path(), "--nproc_per_node=2", "--max_restarts=1", "--shutdown-timeout=5", worker_path()};
  Launched job(launcher + float64("job", {"--training.save_freq=10", "--training.steps=30"}), {.environment = {"OMP_NUM_THREADS=1"}});
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(out("job") / "checkpoints" / "000010"); }));
  const auto ranks = ranks_of(job);
  ASSERT_EQ(ranks.size(), 2);
  ::kill(ranks.at(0), SIGKILL);
  EXPECT_EQ(job.wait(), 0) << job.err();
  // Kernels of a GPU add up in any order, and 30 steps of Adam amplify it.
  EXPECT_LE(largest_difference(weights(out("straight")), weights(out("job"))), device_option() == "--device=cpu" ? 1e-10 : 1e-9);
}

TEST_F(Resume, OneOfEightRanksThatIsKilledIsNamedAndAllStartAgainFromTheCheckpoint) {
  const Words options{"--policy.type=linear", "--dataset.root=synthetic:frames=61,state=4,action=3,episodes=4", "--training.dtype=float64",
                      "--training.batch_size=20", "--training.steps=300", "--training.log_freq=1", "--training.save_freq=50",
                      "--training.num_workers=1", device_option()};
  run(1, options + Words{"--output_dir=" + out("straight").string()});
  const Words launcher{cxxrun::testing::cxxrun_path(), "--nproc_per_node=8", "--max_restarts=1", "--shutdown-timeout=5", worker_path()};
  Launched job(launcher + options + Words{"--output_dir=" + out("job").string()}, {.environment = {"OMP_NUM_THREADS=1"}, .patience = 120s});
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(out("job") / "checkpoints" / "000050"); }, 60s)) << job.err();
  const auto ranks = ranks_of(job);
  ASSERT_EQ(ranks.size(), 8);
  ::kill(ranks.at(5), SIGKILL);
  EXPECT_TRUE(eventually([&] {
    const auto now = ranks_of(job);
    return std::ranges::none_of(ranks, [&](const auto& rank) { return std::ranges::find(now, rank) != now.end(); });
  })) << "survivors";
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.err(), testing::ContainsRegex("rank 5.*SIGKILL"));
  EXPECT_TRUE(job.leaves_nothing());
  EXPECT_LE(largest_difference(weights(out("straight")), weights(out("job"))), device_option() == "--device=cpu" ? 1e-10 : 1e-6);
  const auto lines = metrics(out("job"));
  ASSERT_EQ(lines.size(), 300);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i].at("step"), i + 1);
}

TEST_F(Resume, AnotherSampleOrderIsRefused) {
  run(1, small_act(out("a"), {"--training.steps=2"}));
  const auto& other_seed = run(1, {"--resume=" + out("a").string(), "--training.seed=7", "--training.steps=4", device_option()}, 2);
  EXPECT_THAT(other_seed.err(), testing::AllOf(testing::HasSubstr("training.seed: 1000 -> 7"), testing::HasSubstr("--policy.path=")));
}

TEST_F(Resume, TrueNeedsACheckpointAutoDoesNotAndAnOldFolderIsNotOverwritten) {
  EXPECT_THAT(run(0, small_act(out("a"), {"--training.steps=1", "--resume=true"}), 2).err(), testing::HasSubstr(out("a").string()));
  run(0, small_act(out("a"), {"--training.steps=1", "--resume=auto"}));
  EXPECT_THAT(run(0, small_act(out("a"), {"--training.steps=1"}), 2).err(), testing::HasSubstr("--resume=true"));
}

TEST_F(Resume, APretrainedPolicyStartsANewTraining) {
  run(0, small_act(out("a"), {"--training.steps=2"}));
  const auto go_on = [&](const std::string& name, const std::string& precision) {
    run(0, {"--policy.path=" + (out("a") / "checkpoints" / "last").string(), "--training.steps=0", "--training.epochs=1", "--training.batch_size=61",
            "--dataset.root=synthetic:frames=61,state=4,action=3,episodes=4,image=32x32", "--optimizer.lr=0", "--policy.optimizer_lr_backbone=0",
            device_option(), "--training.precision=" + precision, "--output_dir=" + out(name).string()});
  };
  go_on("b", "fp32");
  EXPECT_EQ(metrics(out("b")).size(), 1);
  const TensorMap start = weights(out("a"));
  EXPECT_EQ(largest_difference(start, weights(out("b"))), 0);
  go_on("c", "bf16-true");
  const TensorMap state = load_safetensors(out("c") / "checkpoints/last/training_state/optimizer.safetensors");
  for (const auto& [name, value] : weights(out("c"))) {
    EXPECT_TRUE(value.equal(start.at(name).to(value.scalar_type()))) << name;
    const auto master = state.find(name + ".master");
    EXPECT_TRUE(master == state.end() || master->second.equal(start.at(name))) << name;
  }
  EXPECT_GT(std::ranges::count_if(state, [](const auto& item) { return item.first.ends_with(".master"); }), 20);
}

}  // namespace
}  // namespace vla
