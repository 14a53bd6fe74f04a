#include "worker/checkpoint/checkpoint.hpp"

#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmath>
#include <fstream>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "common/atomic_file.hpp"
#include "common/scope_exit.hpp"
#include "tests/worker/checkpoint/support.hpp"
#include "worker/checkpoint/fingerprint.hpp"
#include "worker/checkpoint/find_checkpoint.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

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
  TrainingState saved{5, 40, 1000, 8, 4, 100'000, fingerprint("a: 1"), "da7a"};
  saved.numbers = {{"scaler.scale", 65536}, {"scheduler.best", INFINITY}, {"ema.updates", 17}};
  writer.take(files_of(5));
  writer.save(saved);
  writer.wait();
  const TrainingState state = read_training_state(dir.path() / "checkpoints/last");
  EXPECT_EQ(state.step, 5);
  EXPECT_EQ(state.consumed_samples, 40);
  EXPECT_EQ(state.seed, 1000);
  EXPECT_EQ(state.global_batch, 8);
  EXPECT_EQ(state.world_size, 4);
  EXPECT_EQ(state.schedule_steps, 100'000);
  EXPECT_EQ(state.config_hash, fingerprint("a: 1"));
  EXPECT_EQ(state.data_fingerprint, "da7a");
  EXPECT_EQ(state.numbers, saved.numbers);
  EXPECT_FALSE(state.best || state.by_lerobot);
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
    writer.take(files);
    live.fill_(99);
    writer.save(state_of(1));
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
  writer.take(files);
  writer.save(state_of(1));
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
        CheckpointWriter writer({.output_dir = dir.path(), .retention = {.keep = 2}, .after_each_operation = [&] {
                                   if (operations++ == kills) ::kill(::getpid(), SIGKILL);
                                 }});
        save(writer, 3 + kills, 100 - kills);  // each is the best so far, so that both links and the old best one change
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
    EXPECT_EQ(fs::is_symlink(checkpoints / "best"), fs::exists(checkpoints / "best/training_state")) << kills;
  }
  EXPECT_GT(kills, 11);  // one for every file and link at least
  EXPECT_EQ(step_of(checkpoints / "last"), 2 + kills);
  EXPECT_EQ(step_of(checkpoints / "best"), 2 + kills);
  EXPECT_EQ(names_in(checkpoints).size(), 4);  // two checkpoints and the links: nothing is left of the killed saves
}

TEST(Checkpoint, AFailedSaveIsReportedAndTrainingGoesOn) {
  const TempDir dir;
  int operations = 0;
  CheckpointWriter writer({.output_dir = dir.path(), .after_each_operation = [&] {
                             if (operations++ == 2) throw cxxrun::Error("out of luck");
                           }});
  testing::internal::CaptureStderr();
  EXPECT_FALSE(save(writer, 1));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("checkpoint 000001 was not saved"), HasSubstr("training goes on"), HasSubstr("out of luck"), HasSubstr("MiB free")));
  EXPECT_EQ(writer.failures(), 1);
  EXPECT_TRUE(fs::is_empty(dir.path() / "checkpoints"));
  EXPECT_TRUE(save(writer, 2));
  EXPECT_EQ(writer.failures(), 1);
  EXPECT_EQ(step_of(dir.path() / "checkpoints/last"), 2);
}

// Runs a save that has to fail and returns what is said about it.
std::string failing_save(CheckpointWriter& writer, int64_t step, CheckpointFiles files) {
  testing::internal::CaptureStderr();
  writer.take(std::move(files));
  writer.save(state_of(step));
  EXPECT_FALSE(writer.wait());
  return testing::internal::GetCapturedStderr();
}

TEST(Checkpoint, AFullDiskLosesNothing) {
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
  const std::string error = failing_save(writer, 2, files);
  ::setrlimit(RLIMIT_FSIZE, &unlimited);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, AllOf(HasSubstr("000002"), HasSubstr("model.safetensors"), HasSubstr("File too large"), HasSubstr("free in")));
  EXPECT_THAT(names_in(dir.path() / "checkpoints"), ElementsAre("000001", "last"));
  EXPECT_EQ(step_of(dir.path() / "checkpoints/last"), 1);
}

TEST(Checkpoint, AFileSystemThatFillsUpDuringASaveLosesNothing) {
  const TempDir dir;
  if (::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=2m") != 0) GTEST_SKIP() << "mounting needs root";
  const cxxrun::ScopeExit unmount([&] { ::umount(dir.path().c_str()); });
  int operations = 0;
  CheckpointWriter writer({.output_dir = dir.path(), .after_each_operation = [&] {
                             if (++operations == 2) std::ofstream(dir.path() / "other") << std::string(4 << 20, 'x');
                           }});
  EXPECT_THAT(failing_save(writer, 1, files_of(1)), AllOf(HasSubstr("No space left on device"), HasSubstr("(0 MiB free")));
  EXPECT_TRUE(fs::is_empty(dir.path() / "checkpoints"));
  fs::remove(dir.path() / "other");
  EXPECT_TRUE(save(writer, 3));
  EXPECT_EQ(step_of(dir.path() / "checkpoints/last"), 3);
  EXPECT_EQ(writer.failures(), 1);
}

TEST(Checkpoint, WhatCannotFitIsNotEvenBegun) {
  const TempDir dir;
  CheckpointWriter writer({.output_dir = dir.path()});
  CheckpointFiles files = files_of(1);
  // 1 PiB that takes no memory: every element is the same one.
  files.tensors["pretrained_model/model.safetensors"]["w"] = torch::zeros({1}).expand({int64_t{1} << 48});
  EXPECT_GT(files.bytes(), int64_t{1} << 50);
  EXPECT_THAT(error_from([&] { require_free_space(dir.path(), files.bytes()); }), AllOf(HasSubstr("it needs"), HasSubstr("MiB")));
  EXPECT_NO_THROW(require_free_space(dir.path(), 1));
  testing::internal::CaptureStderr();
  CheckpointWriter({.output_dir = dir.path(), .expected_bytes = 1});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  CheckpointWriter({.output_dir = dir.path(), .expected_bytes = files.bytes()});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), AllOf(HasSubstr("room for 0 checkpoints"), HasSubstr("training.keep_checkpoints")));
}

TEST(Checkpoint, AFolderThatIsGoneIsAFailedSaveAndOneThatCannotBeMadeAnError) {
  const TempDir dir;
  const fs::path checkpoints = dir.path() / "checkpoints";
  CheckpointWriter writer({.output_dir = dir.path()});
  save(writer, 1);
  fs::rename(checkpoints, dir.path() / "away");
  cxxrun::write_file_atomically(checkpoints, "not a folder");
  EXPECT_THAT(failing_save(writer, 2, files_of(2)), HasSubstr("000002"));
  EXPECT_THAT(error_from([&] { CheckpointWriter({.output_dir = dir.path()}); }), HasSubstr("--output_dir"));
  fs::remove(checkpoints);
  fs::rename(dir.path() / "away", checkpoints);
  EXPECT_TRUE(save(writer, 3));
  EXPECT_THAT(names_in(checkpoints), ElementsAre("000001", "000003", "last"));
}

TEST(Checkpoint, BestIsTheLowestValidationLossAndStays) {
  const TempDir dir;
  const fs::path checkpoints = dir.path() / "checkpoints";
  {
    CheckpointWriter writer({.output_dir = dir.path(), .retention = {.keep = 1}});
    save(writer, 1, 0.5);
    save(writer, 2, 0.25);
    save(writer, 3, 0.375);
    save(writer, 4);  // not validated
    EXPECT_EQ(fs::read_symlink(checkpoints / "best"), "000002");
    EXPECT_THAT(names_in(checkpoints), ElementsAre("000002", "000004", "best", "last"));
  }
  const auto best = read_training_state(checkpoints / "last").best;
  ASSERT_TRUE(best);
  EXPECT_EQ(best->step, 2);
  EXPECT_EQ(best->loss, 0.25);
  CheckpointWriter continued({.output_dir = dir.path(), .retention = {.keep = 1}, .best = best});
  save(continued, 5, 0.3);
  EXPECT_THAT(names_in(checkpoints), ElementsAre("000002", "000005", "best", "last"));
  save(continued, 6, 0.2);
  EXPECT_THAT(names_in(checkpoints), ElementsAre("000006", "best", "last"));
  save(continued, 7, NAN);
  EXPECT_EQ(fs::read_symlink(checkpoints / "best"), "000006");
}

TEST(Checkpoint, AFailedSaveIsNotTheBest) {
  const TempDir dir;
  bool fails = false;
  CheckpointWriter writer({.output_dir = dir.path(), .retention = {.keep = 1}, .after_each_operation = [&] {
                             if (fails) throw cxxrun::Error("out of luck");
                           }});
  save(writer, 1, 0.5);
  fails = true;
  EXPECT_FALSE(save(writer, 2, 0.1));
  fails = false;
  save(writer, 3, 0.7);
  EXPECT_EQ(step_of(dir.path() / "checkpoints/best"), 1);
  EXPECT_EQ(read_training_state(dir.path() / "checkpoints/last").best->step, 1);
}

TEST(Checkpoint, ASaveWaitsForTheOneBefore) {
  const TempDir dir;
  std::promise<void> disk;
  auto ready = disk.get_future().share();
  CheckpointWriter writer({.output_dir = dir.path(), .after_each_operation = [&] { ready.wait(); }});
  writer.take(files_of(1));
  writer.save(state_of(1));
  std::thread other([&] { disk.set_value(); });
  writer.take(files_of(2));
  writer.save(state_of(2));
  EXPECT_EQ(step_of(dir.path() / "checkpoints/000001"), 1);
  other.join();
  EXPECT_TRUE(writer.wait());
  EXPECT_EQ(step_of(dir.path() / "checkpoints/last"), 2);
}

TEST(Checkpoint, KeepsTheNewestAndWhatLastPointsAt) {
  const TempDir dir;
  CheckpointWriter writer({.output_dir = dir.path(), .retention = {.keep = 2}});
  for (const int64_t step : {10, 20, 30, 40}) save(writer, step);
  EXPECT_THAT(list_checkpoints(dir.path() / "checkpoints"), ElementsAre(30, 40));
  save(writer, 5);  // continued from an older checkpoint
  EXPECT_THAT(list_checkpoints(dir.path() / "checkpoints"), ElementsAre(5, 30, 40));
  EXPECT_EQ(step_of(dir.path() / "checkpoints/last"), 5);
}

TEST(Retention, PlansByNumberMilestoneAndProtection) {
  EXPECT_THAT(plan_removal({1, 2, 3}, {}, {3}), ElementsAre());
  EXPECT_THAT(plan_removal({1, 2, 3}, {.keep = 1}, {3}), ElementsAre(1, 2));
  EXPECT_THAT(plan_removal({1, 2, 3}, {.keep = 1}, {3, 1}), ElementsAre(2));
  EXPECT_THAT(plan_removal({1, 2, 3}, {.keep = 5}, {3}), ElementsAre());
  EXPECT_THAT(plan_removal({}, {.keep = 1}, {3}), ElementsAre());
  EXPECT_THAT(plan_removal({10, 15, 20, 25, 30}, {.keep = 1, .keep_every = 10}, {30}), ElementsAre(15, 25));
  EXPECT_THAT(plan_removal({10, 15, 20}, {.keep_every = 10}, {20}), ElementsAre());
}

TEST(Checkpoint, DamagedTrainingStatesAreErrorsThatNameTheFile) {
  const TempDir dir;
  CheckpointWriter writer({.output_dir = dir.path()});
  save(writer, 1);
  const fs::path checkpoint = dir.path() / "checkpoints/000001",
                 file = checkpoint / "training_state/training_state.json";
  for (const auto& [text, message] : {std::pair("{", "is not valid"),
                                      {"{}", "format_version"},
                                      {R"({"format_version": 99})", "newer"},
                                      {R"({"format_version": 1, "step": "x"})", "is not a training state"}}) {
    cxxrun::write_file_atomically(file, text);
    EXPECT_THAT(error_from([&] { read_training_state(checkpoint); }),
                AllOf(HasSubstr(file.string()), HasSubstr(message)));
  }
}

}  // namespace
}  // namespace vla
