// What goes wrong around a training, with real programs: disks that are full, outputs that cannot be written, files that are garbage.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "tests/support/launched.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;
using cxxrun::read_file;
using cxxrun::testing::Launched;
using testing::AllOf;
using testing::HasSubstr;
using Words = std::vector<std::string>;

struct Faults : testing::Test {
  cxxrun::TempDir folder;
  std::vector<std::unique_ptr<Launched>> keep;

  fs::path out(const std::string& name) const { return folder.path() / name; }
  fs::path checkpoint(const std::string& name, int step) const { return out(name) / "checkpoints" / fmt::format("{:06}", step); }

  // Weights of 80 kB, so that a limit on the size of files stops a checkpoint but not the lines of a log.
  Words training(const std::string& name, int steps, const Words& options = {}) const {
    Words command{cxxrun::testing::program_path("vla_worker"), "--policy.type=linear", "--dataset.root=synthetic:frames=61,state=200,action=100,episodes=4",
                  "--training.batch_size=8", fmt::format("--training.steps={}", steps), "--training.log_freq=1", "--training.save_freq=5",
                  "--training.num_workers=1", cxxrun::testing::device_option(), "--output_dir=" + out(name).string()};
    command.insert(command.end(), options.begin(), options.end());
    return command;
  }
  // No file grows beyond 40 kB: to the program that is a full disk (EFBIG instead of ENOSPC).
  static Words on_full_disk(const Words& command) {
    Words limited{"bash", "-c", "trap '' XFSZ; ulimit -f 40; exec \"$@\"", "bash"};
    limited.insert(limited.end(), command.begin(), command.end());
    return limited;
  }
  Launched& run(const Words& command, int exit_code = 0) {
    keep.push_back(std::make_unique<Launched>(
        command, Launched::Options{.environment = {"OMP_NUM_THREADS=1", "TORCHELASTIC_ERROR_FILE", "RANK", "WORLD_SIZE"}, .patience = std::chrono::seconds(120)}));
    EXPECT_EQ(keep.back()->wait(), exit_code) << keep.back()->err() << keep.back()->out();
    return *keep.back();
  }
  static std::string lines(const fs::path& output_dir) {
    std::string steps;
    std::ifstream file(output_dir / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) steps += fmt::format("{} ", nlohmann::json::parse(line).at("step").get<int>());
    return steps;
  }
};

TEST_F(Faults, AFullDiskCostsCheckpointsButNotTheTrainingAndTheOldOnesStay) {
  run(training("straight", 10));
  run(training("full", 5));
  const auto& full = run(on_full_disk(training("full", 10, {"--resume=true"})), 1);
  EXPECT_THAT(full.err(), AllOf(HasSubstr("000010 was not saved"), HasSubstr("File too large"), HasSubstr("training goes on")));
  EXPECT_EQ(lines(out("full")), "1 2 3 4 5 6 7 8 9 10 ");
  EXPECT_FALSE(fs::exists(checkpoint("full", 10)));
  // What is there is whole: once there is room, the training continues from it.
  run(training("full", 10, {"--resume=true"}));
  const char* weights = "pretrained_model/model.safetensors";
  EXPECT_TRUE(read_file(checkpoint("full", 10) / weights) == read_file(checkpoint("straight", 10) / weights));
}

TEST_F(Faults, AnOutputThatCannotBeWrittenIsRefusedAndNamed) {
  std::ofstream(out("file")) << "in the way";
  EXPECT_THAT(run(training("file", 2), 1).err(), HasSubstr(out("file").string()));
  EXPECT_THAT(run(training("straight", 2, {"--output_dir=/proc/no/output"}), 1).err(), HasSubstr("/proc/no"));
}

TEST_F(Faults, ATornCheckpointIsPassedOverForTheOneBefore) {
  run(training("straight", 15));
  run(training("torn", 10));
  std::ofstream(checkpoint("torn", 10) / "pretrained_model/model.safetensors") << "garbage";
  const auto& resumed = run(training("torn", 15, {"--resume=true"}));
  EXPECT_THAT(resumed.out() + resumed.err(), AllOf(HasSubstr("000010"), HasSubstr("model.safetensors"), HasSubstr("after step 5 of 15")));
  EXPECT_EQ(lines(out("torn")), lines(out("straight")));
  for (const char* file : {"pretrained_model/model.safetensors", "training_state/optimizer.safetensors"}) {
    EXPECT_TRUE(read_file(checkpoint("torn", 15) / file) == read_file(checkpoint("straight", 15) / file)) << file;
  }
}

TEST_F(Faults, AGarbledTableOfADatasetEndsAllRanksWithItsName) {
  fs::copy(std::string(TEST_DATA_DIR) + "/lerobot_png", out("dataset"), fs::copy_options::recursive);
  const auto table = out("dataset") / "data/chunk-000/file-000.parquet";
  std::ofstream(table, std::ios::binary) << std::string(100'000, 'x');
  Words command{cxxrun::testing::cxxrun_path(), "--nproc_per_node=2", "--shutdown-timeout=5"};
  const Words job = training("out", 2, {"--dataset.root=" + out("dataset").string()});
  command.insert(command.end(), job.begin(), job.end());
  const auto& result = run(command, 5);
  EXPECT_THAT(result.err(), HasSubstr("file-000.parquet"));
  EXPECT_TRUE(result.leaves_nothing());
}

}  // namespace
}  // namespace vla
