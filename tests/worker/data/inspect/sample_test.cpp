#include "tests/worker/data/inspect/support.hpp"

namespace vla::data {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::vector<json> lines_of(const std::string& output) {
  std::vector<json> lines;
  std::istringstream in(output);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

// The pixels at rows x cols that the first camera of the first sample is compared at, as --pixels takes them.
std::string pixel_argument(const json& samples) {
  const json& picture = *samples[0]["images"].begin();
  std::string text;
  for (const json& row : picture["rows"]) {
    for (const json& column : picture["cols"]) text += fmt::format("{},{};", row.dump(), column.dump());
  }
  return text;
}

std::vector<json> read_samples(const std::string& root, const json& samples, int64_t chunk) {
  std::vector<std::string> arguments = {
      "sample", root, "--json", "--chunk", std::to_string(chunk), "--pixels", pixel_argument(samples)};
  for (const json& sample : samples) {
    arguments.insert(arguments.end(), {"--episode", sample["episode"].dump(), "--frame", sample["frame"].dump()});
  }
  const Outcome run = run_data(arguments);
  EXPECT_EQ(run.exit_code, 0);
  return lines_of(run.output);
}

void expect_pixels(const json& picture, const json& expected, const json& grid, int tolerance) {
  EXPECT_EQ(picture["height"], expected["shape_hwc"][0]);
  EXPECT_EQ(picture["width"], expected["shape_hwc"][1]);
  size_t at = 0;
  for (const json& row : grid) {
    for (const json& pixel : row) {
      ASSERT_LT(at, picture["rgb"].size());
      for (size_t k = 0; k < 3; ++k)
        EXPECT_NEAR(picture["rgb"][at][k].get<int>(), pixel[k].get<int>(), tolerance) << at;
      ++at;
    }
  }
  EXPECT_EQ(picture["rgb"].size(), at);
}

void expect_samples(const std::vector<json>& lines, const json& samples, const char* grid, int tolerance) {
  ASSERT_EQ(lines.size(), samples.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    SCOPED_TRACE(i);
    const json& line = lines[i];
    const json& expected = samples[i];
    for (const char* key : {"episode", "frame", "index", "timestamp", "task"})
      EXPECT_EQ(line[key], expected[key]) << key;
    EXPECT_EQ(line["observation.state"], expected["state"]);
    EXPECT_EQ(line["action"], expected["action_chunk"]);
    EXPECT_EQ(line["action_is_pad"], expected["action_is_pad"]);
    EXPECT_EQ(line["images"].size(), expected["images"].size());
    for (const auto& [camera, picture] : expected["images"].items())
      expect_pixels(line["images"][camera], picture, picture[grid], tolerance);
  }
}

class SampleOfDemo : public testing::TestWithParam<const char*> {};

// Values of LeRobot's own reader.
TEST_P(SampleOfDemo, EqualsLeRobotsReader) {
  const json expected = read_json_file(kData + "/expected.json");
  const json& samples = expected["datasets"][GetParam()]["samples"];
  expect_samples(read_samples(kData + "/" + GetParam(), samples, expected["action_chunk_length"]), samples, "grid_rgb",
                 1);
}

INSTANTIATE_TEST_SUITE_P(DataSample, SampleOfDemo, testing::Values("metaworld_demo", "lerobot_h264", "lerobot_png"),
                         [](const auto& name) { return std::string(name.param); });

std::vector<std::string> hard_cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kData + "/hard")) {
    if (read_json_file(entry.path() / "case.json")["kind"] == "dataset") names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class SampleOfHardCase : public testing::TestWithParam<std::string> {};

TEST_P(SampleOfHardCase, IsReadRightOrRefusedClearly) {
  const std::string folder = kData + "/hard/" + GetParam();
  const json test = read_json_file(folder + "/case.json");
  const std::string root = folder + "/" + test["open"]["root"].get<std::string>();
  if (test["expect"] == "values") {
    expect_samples(read_samples(root, test["values"], test["action_chunk_length"]), test["values"], "rgb",
                   test["rgb_tolerance"]);
    return;
  }
  const std::string message = message_of<cxxrun::DataError>([&] {
    run_data({"sample", root, "--episode", "0", "--frame", "0", "--json"});
  });
  EXPECT_NE(message, "");
  // "episode 1 frame 6 (first without a picture)", "dataset_from_index 17", "the real first row 9": the words and numbers count.
  for (const json& part : test["error"]["must_name"]) {
    std::istringstream words(part.get<std::string>().substr(0, part.get<std::string>().find('(')));
    for (std::string word; words >> word;) EXPECT_THAT(message, HasSubstr(word)) << part;
  }
}

INSTANTIATE_TEST_SUITE_P(DataSample, SampleOfHardCase, testing::ValuesIn(hard_cases()),
                         [](const auto& name) { return name.param; });

TEST(DataSample, EveryFrameBelongsToTheEpisodeBeforeIt) {
  const std::string root = "synthetic:frames=20,episodes=2,image=4x6";
  const auto places = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"sample", "--json", root};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::vector<std::pair<int, int>> result;
    for (const json& line : lines_of(run_data(arguments).output)) result.emplace_back(line["episode"], line["frame"]);
    return result;
  };
  using Places = std::vector<std::pair<int, int>>;
  EXPECT_EQ(places({"--episode=1", "--frame=9", "--frame", "2", "--episode", "0", "--frame", "4"}),
            (Places{{1, 9}, {1, 2}, {0, 4}}));
  EXPECT_EQ(places({"--frame=9", "--episode=1"}), (Places{{1, 9}}));
}

TEST(DataSample, WithoutTimestampsTheTimeIsFrameOverFps) {
  const json line =
      lines_of(run_data({"sample", "synthetic:frames=20", "--episode=0", "--frame=3", "--json"}).output).at(0);
  EXPECT_DOUBLE_EQ(line["timestamp"], 0.3);
  EXPECT_EQ(line["action"].size(), 1U);
  EXPECT_EQ(line["images"], json::object());
}

TEST(DataSample, WrongPlacesAreNamed) {
  const std::string root = "synthetic:frames=20,episodes=2,image=4x6";
  EXPECT_THAT(usage_error({"sample", root}), HasSubstr("--episode and --frame"));
  EXPECT_THAT(usage_error({"sample", root, "--episode=0"}), HasSubstr("--episode and --frame"));
  EXPECT_THAT(usage_error({"sample", root, "--episode=0", "--episode=1", "--frame=0"}),
              HasSubstr("--episode 0 has no --frame"));
  EXPECT_THAT(usage_error({"sample", root, "--episode=2", "--frame=0"}),
              HasSubstr("no episode 2, the dataset has 0 to 1"));
  EXPECT_THAT(usage_error({"sample", root, "--episode=1", "--frame=10"}),
              HasSubstr("no frame 10, episode 1 has frames 0 to 9"));
  EXPECT_THAT(usage_error({"sample", root, "--episode=1", "--frame=1", "--pixels=4,0"}), HasSubstr("4,0 is outside"));
  EXPECT_THAT(usage_error({"sample", root, "--episode=1", "--frame=1", "--pixels=4;0"}), HasSubstr("'Y,X;Y,X'"));
  EXPECT_THAT(usage_error({"sample", "--episode=1", "--frame=1"}), HasSubstr("expected one dataset, got 0"));
}

TEST(DataCommand, UnknownVerbsNameTheNearest) {
  EXPECT_THAT(usage_error({"smaple"}), HasSubstr("did you mean 'sample'?"));
  EXPECT_THAT(usage_error({}), HasSubstr("needs a verb"));
}

TEST(DataCommand, HelpHasOptionsAndExamples) {
  EXPECT_THAT(run_data({"--help"}).output, HasSubstr("vla_worker data sample DATASET"));
  const std::string help = run_data({"sample", "--help"}).output;
  EXPECT_THAT(help, HasSubstr("--chunk"));
  EXPECT_THAT(help, HasSubstr("vla_worker data sample ~/data"));
}

}  // namespace
}  // namespace vla::data
