#include "worker/checkpoint/checkpoint.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "tests/support/temp_dir.hpp"
#include "worker/checkpoint/retention.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;
using cxxrun::TempDir;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A checkpoint whose contents say which step it is of.
CheckpointFiles files_of(int64_t step) {
  CheckpointFiles files;
  files.tensors["pretrained_model/model.safetensors"]["w"] = torch::full({3}, step, torch::kFloat);
  add_training_state(files,
                     {.step = step, .consumed_samples = 8 * step, .global_batch = 8, .config_hash = fingerprint("x")},
                     {{"w.exp_avg", torch::full({3}, -step, torch::kFloat)}});
  return files;
}

void save(CheckpointWriter& writer, int64_t step) {
  writer.save(step, files_of(step));
  writer.wait();
}

// The step of a checkpoint all of whose files agree on it.
int64_t step_of(const fs::path& checkpoint) {
  const TrainingState state = read_training_state(checkpoint);
  EXPECT_EQ(load_safetensors(checkpoint / "pretrained_model/model.safetensors").at("w")[0].item<int64_t>(), state.step);
  EXPECT_EQ(read_optimizer_state(checkpoint).at("w.exp_avg")[0].item<int64_t>(), -state.step);
  return state.step;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const cxxrun::Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Checkpoint, LastIsARelativeLinkToTheNewest) {
  const TempDir dir;
  CheckpointWriter writer({.output_dir = dir.path()});
  save(writer, 100);
  save(writer, 200);
  EXPECT_THAT(names_in(dir.path() / "checkpoints"), ElementsAre("000100", "000200", "last"));
  EXPECT_EQ(fs::read_symlink(dir.path() / "checkpoints/last"), "000200");
  EXPECT_EQ(step_of(dir.path() / "checkpoints/last"), 200);
  EXPECT_EQ(step_of(dir.path() / "checkpoints/000100"), 100);
}

TEST(Checkpoint, KeepsTheWholeTrainingState) {
  const TempDir dir;
  CheckpointWriter writer({.output_dir = dir.path()});
  CheckpointFiles files = files_of(5);
  add_training_state(files, {5, 40, 1000, 8, 4, 100'000, fingerprint("a: 1")}, {});
  writer.save(5, std::move(files));
  writer.wait();
  const TrainingState state = read_training_state(dir.path() / "checkpoints/last");
  EXPECT_EQ(state.step, 5);
  EXPECT_EQ(state.consumed_samples, 40);
  EXPECT_EQ(state.seed, 1000);
  EXPECT_EQ(state.global_batch, 8);
  EXPECT_EQ(state.world_size, 4);
  EXPECT_EQ(state.schedule_steps, 100'000);
  EXPECT_EQ(state.config_hash, fingerprint("a: 1"));
  EXPECT_NE(state.config_hash, fingerprint("a: 2"));
  EXPECT_EQ(fingerprint("a"), "af63dc4c8601ec8c");  // FNV-1a's published value
}

TEST(Checkpoint, SnapshotIsNotTouchedByLaterTraining) {
  for (const torch::Device device : {torch::Device("cpu"), torch::Device("cuda")}) {
    if (device.is_cuda() && !torch::cuda::is_available()) continue;
    const TempDir dir;
    CheckpointWriter writer({.output_dir = dir.path()});
    CheckpointFiles files = files_of(1);
    torch::Tensor& live = files.tensors["pretrained_model/model.safetensors"]["w"];
    live = live.to(device);
    writer.save(1, files);
    live.fill_(99);
    writer.wait();
    EXPECT_EQ(step_of(dir.path() / "checkpoints/last"), 1) << device;
  }
}

TEST(Checkpoint, SavingAStepAgainReplacesItWhole) {
  const TempDir dir;
  CheckpointWriter writer({.output_dir = dir.path()});
  save(writer, 1);
  CheckpointFiles files = files_of(1);
  files.texts["pretrained_model/note"] = "second";
  writer.save(1, files);
  writer.wait();
  EXPECT_TRUE(fs::exists(dir.path() / "checkpoints/000001/pretrained_model/note"));
  EXPECT_THAT(names_in(dir.path() / "checkpoints"), ElementsAre("000001", "last"));
}

TEST(Checkpoint, AKilledSaveLeavesACompleteLastWhereverItIsKilled) {
  const TempDir dir;
  const fs::path checkpoints = dir.path() / "checkpoints";
  {
    CheckpointWriter writer({.output_dir = dir.path()});
    save(writer, 1);
    save(writer, 2);
  }
  int kills = 0;
  int64_t previous = 2;
  for (bool killed = true; killed; ++kills) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        int operations = 0;
        CheckpointWriter writer({.output_dir = dir.path(), .keep = 2, .after_each_operation = [&] {
                                   if (operations++ == kills) ::kill(::getpid(), SIGKILL);
                                 }});
        save(writer, 3 + kills);
      } catch (...) {
        ::_exit(1);  // back in GoogleTest, the child would run the other tests too
      }
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    killed = WIFSIGNALED(status);
    ASSERT_TRUE(killed || WEXITSTATUS(status) == 0);
    const int64_t last = step_of(checkpoints / "last");
    EXPECT_TRUE(last == previous || last == 3 + kills) << last << " after operation " << kills;
    previous = last;
    for (const int64_t step : list_checkpoints(checkpoints))
      EXPECT_EQ(step_of(checkpoints / checkpoint_name(step)), step);
    EXPECT_EQ(step_of(*find_checkpoint("true", dir.path())), last);
  }
  EXPECT_GT(kills, 6);  // one for every file at least
  EXPECT_EQ(step_of(checkpoints / "last"), 2 + kills);
  EXPECT_EQ(names_in(checkpoints).size(), 3);  // two checkpoints and the link: nothing is left of the killed saves
}

TEST(Checkpoint, AFailedSaveIsReportedAndCostsNothing) {
  const TempDir dir;
  int operations = 0;
  CheckpointWriter writer({.output_dir = dir.path(), .after_each_operation = [&] {
                             if (operations++ == 2) throw cxxrun::Error("out of luck");
                           }});
  const std::string error = error_of([&] { save(writer, 1); });
  EXPECT_THAT(error,
              AllOf(HasSubstr("checkpoint 000001 was not saved"), HasSubstr("out of luck"), HasSubstr("MiB free")));
  EXPECT_TRUE(fs::is_empty(dir.path() / "checkpoints"));
  save(writer, 2);
  EXPECT_EQ(step_of(dir.path() / "checkpoints/last"), 2);
}

TEST(Checkpoint, AFullDiskIsAClearErrorAndLosesNothing) {
  const TempDir dir;
  CheckpointWriter writer({.output_dir = dir.path()});
  save(writer, 1);
  CheckpointFiles files = files_of(2);
  files.tensors["pretrained_model/model.safetensors"]["large"] = torch::zeros({1 << 16});
  rlimit unlimited{};
  ::getrlimit(RLIMIT_FSIZE, &unlimited);
  rlimit small = unlimited;
  small.rlim_cur = 1 << 16;
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = error_of([&] {
    writer.save(2, files);
    writer.wait();
  });
  ::setrlimit(RLIMIT_FSIZE, &unlimited);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, AllOf(HasSubstr("000002"), HasSubstr("model.safetensors"), HasSubstr("File too large"),
                           HasSubstr("free in")));
  EXPECT_THAT(names_in(dir.path() / "checkpoints"), ElementsAre("000001", "last"));
  EXPECT_EQ(step_of(dir.path() / "checkpoints/last"), 1);
}

TEST(Checkpoint, KeepsTheNewestAndWhatLastPointsAt) {
  const TempDir dir;
  CheckpointWriter writer({.output_dir = dir.path(), .keep = 2});
  for (const int64_t step : {10, 20, 30, 40}) save(writer, step);
  EXPECT_THAT(list_checkpoints(dir.path() / "checkpoints"), ElementsAre(30, 40));
  save(writer, 5);  // continued from an older checkpoint
  EXPECT_THAT(list_checkpoints(dir.path() / "checkpoints"), ElementsAre(5, 30, 40));
  EXPECT_EQ(step_of(dir.path() / "checkpoints/last"), 5);
}

TEST(Retention, PlansByNumberAndProtection) {
  EXPECT_THAT(plan_removal({1, 2, 3}, 0, 3), ElementsAre());
  EXPECT_THAT(plan_removal({1, 2, 3}, 1, 3), ElementsAre(1, 2));
  EXPECT_THAT(plan_removal({1, 2, 3}, 1, 1), ElementsAre(2));
  EXPECT_THAT(plan_removal({1, 2, 3}, 5, 3), ElementsAre());
  EXPECT_THAT(plan_removal({}, 1, 3), ElementsAre());
}

TEST(FindCheckpoint, TakesEveryFormOfResume) {
  const TempDir dir;
  const fs::path out = dir.path() / "run", checkpoints = out / "checkpoints";
  EXPECT_FALSE(find_checkpoint("", out));
  EXPECT_FALSE(find_checkpoint("false", out));
  EXPECT_FALSE(find_checkpoint("auto", out));
  EXPECT_THAT(error_of([&] { find_checkpoint("true", out); }),
              AllOf(HasSubstr(checkpoints.string()), HasSubstr("--resume=auto")));
  CheckpointWriter writer({.output_dir = out});
  save(writer, 7);
  save(writer, 8);
  const fs::path seven = fs::canonical(checkpoints / "000007"), eight = fs::canonical(checkpoints / "000008");
  for (const std::string resume : {"true", "auto"}) EXPECT_EQ(find_checkpoint(resume, out), eight);
  for (const fs::path& path :
       {out, checkpoints, checkpoints / "last", checkpoints / "last/pretrained_model", checkpoints / "last/"}) {
    EXPECT_EQ(find_checkpoint(path, "/nowhere"), eight) << path;
  }
  for (const char* path : {"000007", "000007/pretrained_model", "000007/pretrained_model/model.safetensors"}) {
    EXPECT_EQ(find_checkpoint(checkpoints / path, "/nowhere"), seven) << path;
  }
  EXPECT_THAT(error_of([&] { find_checkpoint(dir.path() / "typo", out); }), HasSubstr("typo"));
}

TEST(FindCheckpoint, FallsBackToTheNewestWhenTheLinkIsBroken) {
  const TempDir dir;
  CheckpointWriter writer({.output_dir = dir.path()});
  save(writer, 1);
  save(writer, 2);
  fs::remove(dir.path() / "checkpoints/last");
  fs::create_symlink("000009", dir.path() / "checkpoints/last");
  EXPECT_EQ(step_of(*find_checkpoint("auto", dir.path())), 2);
}

TEST(Checkpoint, DamagedTrainingStatesAreErrorsThatNameTheFile) {
  const TempDir dir;
  CheckpointWriter writer({.output_dir = dir.path()});
  save(writer, 1);
  const fs::path checkpoint = dir.path() / "checkpoints/000001",
                 file = checkpoint / "training_state/training_state.json";
  for (const auto& [text, message] : {std::pair("{", "is not a training state"),
                                      {"{}", "format_version"},
                                      {R"({"format_version": 99})", "newer"},
                                      {R"({"format_version": 1, "step": "x"})", "is not a training state"}}) {
    cxxrun::write_file_atomically(file, text);
    EXPECT_THAT(error_of([&] { read_training_state(checkpoint); }),
                AllOf(HasSubstr(file.string()), HasSubstr(message)));
  }
}

}  // namespace
}  // namespace vla
