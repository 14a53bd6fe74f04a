#include "worker/checkpoint/find_checkpoint.hpp"

#include "common/atomic_file.hpp"
#include "tests/worker/checkpoint/support.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(FindCheckpoint, TakesEveryFormOfResume) {
  const TempDir dir;
  const fs::path out = dir.path() / "run", checkpoints = out / "checkpoints";
  EXPECT_FALSE(find_checkpoint("", out));
  EXPECT_FALSE(find_checkpoint("false", out));
  EXPECT_FALSE(find_checkpoint("auto", out));
  EXPECT_THAT(error_from([&] { find_checkpoint("true", out); }), AllOf(HasSubstr(checkpoints.string()), HasSubstr("--resume=auto")));
  CheckpointWriter writer({.output_dir = out});
  save(writer, 7, 0.5);
  save(writer, 8);
  const fs::path seven = fs::canonical(checkpoints / "000007"), eight = fs::canonical(checkpoints / "000008");
  for (const std::string resume : {"true", "auto"}) EXPECT_EQ(find_checkpoint(resume, out), eight);
  for (const fs::path& path :
       {out, checkpoints, checkpoints / "last", checkpoints / "last/pretrained_model", checkpoints / "last/"}) {
    EXPECT_EQ(find_checkpoint(path, "/nowhere"), eight) << path;
  }
  for (const char* path : {"000007", "000007/pretrained_model", "000007/pretrained_model/model.safetensors", "best"}) {
    EXPECT_EQ(find_checkpoint(checkpoints / path, "/nowhere"), seven) << path;
  }
  // As other programs name them; "checkpoint-7" alone is looked for in output_dir.
  for (const fs::path& path : {checkpoints / "best_model.pth", checkpoints / "checkpoint-7", out / "checkpoint-7", fs::path("checkpoint-7")}) {
    EXPECT_EQ(find_checkpoint(path, out), seven) << path;
  }
  for (const char* missing : {"typo", "checkpoint-9", "checkpoint-x", "best_model.pth"}) {
    EXPECT_THAT(error_from([&] { find_checkpoint(dir.path() / missing, "/nowhere"); }), HasSubstr(missing));
  }
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

struct Damage {
  const char* name;
  std::function<void(const fs::path& checkpoint)> make;
  const char* message;
};

const Damage kDamages[] = {
    {"missing file", [](const fs::path& c) { fs::remove(c / "training_state/optimizer.safetensors"); }, "optimizer.safetensors is missing"},
    {"missing folder", [](const fs::path& c) { fs::remove_all(c / "training_state"); }, "training_state.json is missing"},
    {"truncated tensors", [](const fs::path& c) { fs::resize_file(c / "pretrained_model/model.safetensors", 100); },
     "model.safetensors is incomplete: 100 of"},
    {"truncated without a list of files",
     [](const fs::path& c) {
       fs::remove(c / kManifestFile);
       fs::resize_file(c / "pretrained_model/model.safetensors", fs::file_size(c / "pretrained_model/model.safetensors") - 1);
     },
     "model.safetensors is truncated"},
    {"empty tensors without a list of files",
     [](const fs::path& c) {
       fs::remove(c / kManifestFile);
       fs::resize_file(c / "training_state/optimizer.safetensors", 0);
     },
     "optimizer.safetensors is truncated"},
    {"garbage of the right size",
     [](const fs::path& c) {
       const fs::path file = c / "training_state/training_state.json";
       cxxrun::write_file_atomically(file, std::string(fs::file_size(file), '{'));
     },
     "training_state.json is"},
    {"a list of files that is none", [](const fs::path& c) { cxxrun::write_file_atomically(c / kManifestFile, "[]"); }, "not a JSON object"},
};

TEST(FindCheckpoint, TornCheckpointsArePassedOverAndNamed) {
  for (const Damage& damage : kDamages) {
    const TempDir dir;
    const fs::path checkpoints = dir.path() / "checkpoints";
    CheckpointWriter writer({.output_dir = dir.path()});
    for (const int64_t step : {1, 2, 3}) save(writer, step);
    damage.make(checkpoints / "000003");
    for (const std::string& resume : {std::string("true"), std::string("auto"), checkpoints.string(), (checkpoints / "last").string()}) {
      testing::internal::CaptureStdout();
      const auto found = find_checkpoint(resume, dir.path());
      EXPECT_THAT(testing::internal::GetCapturedStdout(), AllOf(HasSubstr("000003"), HasSubstr(damage.message))) << damage.name;
      ASSERT_TRUE(found) << damage.name;
      EXPECT_EQ(step_of(*found), 2) << damage.name << " " << resume;
    }
    if (fs::exists(checkpoints / "000003/training_state")) {
      EXPECT_THAT(error_from([&] { find_checkpoint(checkpoints / "000003", dir.path()); }),
                  AllOf(HasSubstr("000003"), HasSubstr(damage.message), HasSubstr("--resume=" + checkpoints.string())))
          << damage.name;
    }
  }
}

TEST(FindCheckpoint, OnlyTornCheckpointsAreAnErrorAndNoNewStart) {
  const TempDir dir;
  CheckpointWriter writer({.output_dir = dir.path()});
  save(writer, 1);
  fs::remove(dir.path() / "checkpoints/000001/pretrained_model/model.safetensors");
  for (const char* resume : {"true", "auto"}) {
    EXPECT_THAT(error_from([&] { find_checkpoint(resume, dir.path()); }), AllOf(HasSubstr("model.safetensors is missing"), Not(HasSubstr("start anew"))));
  }
}

}  // namespace
}  // namespace vla
