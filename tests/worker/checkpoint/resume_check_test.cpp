#include "worker/checkpoint/resume_check.hpp"

#include "common/atomic_file.hpp"
#include "common/option_text.hpp"
#include "tests/worker/checkpoint/support.hpp"
#include "worker/train_config.hpp"

namespace vla {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct ResumeRules : testing::Test {
  TempDir dir;
  TrainConfig config;
  cxxrun::OptionTable table;
  TrainingState state{.step = 7, .seed = 1000, .global_batch = 32, .world_size = 4, .data_fingerprint = "da7a"};

  ResumeRules() {
    config.describe(table);
    std::filesystem::create_directories(dir.path() / "training_state");
    cxxrun::write_file_atomically(dir.path() / "training_state/config.yaml", cxxrun::dump_yaml(table));
  }

  ResumeCheck check(const TrainingState& now) { return check_resume(dir.path(), state, now, table); }
};

TEST_F(ResumeRules, TheSameRunOnAnotherWorldHasNothingToSay) {
  TrainingState now = state;
  now.world_size = 2;
  now.step = 0;
  const ResumeCheck result = check(now);
  EXPECT_THAT(result.conflicts, IsEmpty());
  EXPECT_THAT(result.changes, IsEmpty());
  EXPECT_NO_THROW(result.require(dir.path(), false));
}

TEST_F(ResumeRules, AnotherOrderOfSamplesIsRefusedUnlessAskedFor) {
  TrainingState now = state;
  now.seed = 7;
  now.global_batch = 64;
  now.data_fingerprint = "0ther";
  config.training.drop_last = true;
  const ResumeCheck result = check(now);
  EXPECT_THAT(result.conflicts, ElementsAre("training.seed: 1000 -> 7", "samples per step: 32 -> 64",
                                            AllOf(HasSubstr("training data"), HasSubstr("da7a -> 0ther")), "training.drop_last: false -> true"));
  EXPECT_THAT(error_from([&] { result.require(dir.path(), false); }),
              AllOf(HasSubstr(dir.path().string()), HasSubstr("training.seed: 1000 -> 7"), HasSubstr("--resume_changed=true"), HasSubstr("--policy.path=")));
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(result.require(dir.path(), true));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("samples per step: 32 -> 64"));
}

TEST_F(ResumeRules, OtherChangesAreOneLineEach) {
  config.optimizer.lr = 2e-4;
  table.find("optimizer.lr")->source = "command line";
  config.training.steps = 500;
  config.output_dir = "/elsewhere";
  const ResumeCheck result = check(state);
  EXPECT_THAT(result.conflicts, IsEmpty());
  EXPECT_THAT(result.changes, ElementsAre("optimizer.lr: 0.0001 -> 0.0002 (command line)", "training.steps: 0 -> 500"));
  testing::internal::CaptureStdout();
  result.require(dir.path(), false);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("changed since the checkpoint: optimizer.lr: 0.0001 -> 0.0002"));
}

TEST_F(ResumeRules, WhatAnOlderCheckpointDoesNotKnowIsNoConflict) {
  state.data_fingerprint = "";
  state.global_batch = 0;
  TrainingState now = state;
  now.data_fingerprint = "da7a";
  now.global_batch = 8;
  cxxrun::write_file_atomically(dir.path() / "training_state/config.yaml", "training:\n  steps: 0\n");
  EXPECT_THAT(check(now).conflicts, IsEmpty());
  EXPECT_THAT(check(now).changes, IsEmpty());
}

}  // namespace
}  // namespace vla
