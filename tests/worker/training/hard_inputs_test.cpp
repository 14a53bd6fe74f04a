// Datasets on which other readers fail or give wrong values, in training: read to the end of an epoch, or refused before the first step
// with what the case says the message must name.
#include "tests/worker/training/support.hpp"

namespace vla {
namespace {

struct HardInputs : TrainingTest {};

TEST_F(HardInputs, TrainForAnEpochOrAreRefusedBeforeTheFirstStep) {
  int trained = 0, refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TEST_DATA_DIR "/hard")) {
    const auto expected = nlohmann::json::parse(std::ifstream(entry.path() / "case.json"));
    if (expected.at("kind") != "dataset") continue;
    const std::string name = entry.path().filename().string();
    SCOPED_TRACE(name);
    const bool is_readable = expected.at("expect") == "values";
    const auto& result = run(0, small_act(out(name), {"--dataset.root=" + (entry.path() / expected.at("open").at("root")).string(), "--training.steps=0",
                                                      "--training.epochs=1", "--training.batch_size=16"}),
                             is_readable ? 0 : 5);
    if (is_readable) {
      ++trained;
      EXPECT_GE(metrics(out(name)).size(), 1);
    } else {
      ++refused;
      EXPECT_THAT(result.err(), testing::HasSubstr("episode 1"));
      EXPECT_FALSE(std::filesystem::exists(out(name) / "metrics.jsonl"));
    }
  }
  EXPECT_EQ(trained, 8);
  EXPECT_EQ(refused, 2);
}

}  // namespace
}  // namespace vla
