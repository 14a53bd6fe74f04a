// LeRobot v2.1: JSON-lines tables, one data file and one video an episode. Its values are tested with those of v3 in lerobot_test.
#include <algorithm>

#include "common/error.hpp"
#include "tests/worker/data/support.hpp"

namespace vla::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

class LeRobotV2 : public testing::Test {
 protected:
  std::string open_error() const {
    return message_of<cxxrun::DataError>([&] {
      open_dataset({.root = root_})->layout({{"observation.state", {}}, {"action", {}}});
    });
  }
  // Changes the lines of a table by a function of their objects.
  template <class Edit>
  void edit_lines(const std::string& table, Edit edit) const {
    std::string text;
    for (const std::string& line : lines_of(root_ + "/meta/" + table)) {
      auto json = nlohmann::ordered_json::parse(line);
      edit(json);
      text += json.dump() + "\n";
    }
    write_text(root_ + "/meta/" + table, text);
  }

  TempDir dir_;
  const std::string root_ = dir_.copy("lerobot_v21");
};

// Values of lerobot 0.6.1: scripts/reference/make_merged_stats.py.
TEST_F(LeRobotV2, StatisticsAreAggregatedAsLeRobotDoes) {
  edit_lines("episodes_stats.jsonl", [](auto& line) {
    auto& state = line["stats"]["observation.state"];
    for (const auto& [name, part] : {std::pair("q01", 0.25), {"q99", 0.75}}) {
      state[name] = state["min"];
      for (auto& value : state[name])
        value = value.template get<double>() + part * line["episode_index"].template get<double>();
    }
  });
  const auto expected = read_json_file(kData + "/lerobot_v21_stats.json");
  const auto dataset = open_dataset({.root = root_});
  EXPECT_EQ(dataset->stats().size(), expected.size());
  for (const auto& [key, of_feature] : expected.items()) {
    EXPECT_EQ(dataset->stats().at(key).size(), of_feature.size()) << key;
    for (const auto& [name, values] : of_feature.items()) {
      SCOPED_TRACE(key + " " + name);
      const StatTensor& tensor = dataset->stats().at(key).at(name);
      const auto flat = values.flatten();
      ASSERT_EQ(tensor.values.size(), flat.size());
      EXPECT_EQ(tensor.shape.size(), key == "observation.image" && name != "count" ? 3U : 1U);
      size_t i = 0;
      for (const auto& value : flat)
        EXPECT_NEAR(tensor.values[i++], value.get<double>(), 1e-13 * (1 + std::abs(value.get<double>())));
    }
  }
  EXPECT_EQ(dataset->description(), "LeRobot v2.1, " + root_);
}

TEST_F(LeRobotV2, OrderOfLinesDoesNotMatter) {
  for (const char* table : {"tasks.jsonl", "episodes.jsonl", "episodes_stats.jsonl"}) {
    std::vector<std::string> lines = lines_of(root_ + "/meta/" + table);
    std::reverse(lines.begin(), lines.end());
    std::string text = "\n";  // and blank ones
    for (const std::string& line : lines) text += line + "\r\n\n";
    write_text(root_ + "/meta/" + table, text);
  }
  const auto original = open_dataset({.root = kData + "/lerobot_v21"}), shuffled = open_dataset({.root = root_});
  EXPECT_EQ(original->tasks(), shuffled->tasks());
  const SampleRequest request = {{"action", {0, 1}}, {"observation.image", {}}};
  const SampleLayout layout = original->layout(request);
  for (const int64_t i : {0, 120, 387})
    EXPECT_TRUE(Sample(layout, *original->open_reader(request), i) ==
                Sample(layout, *shuffled->open_reader(request), i));
}

TEST_F(LeRobotV2, StatisticsOfV20AreInOneFile) {
  edit_json(root_ + "/meta/info.json", [](auto& info) { info["codebase_version"] = "v2.0"; });
  std::filesystem::remove(root_ + "/meta/episodes_stats.jsonl");
  EXPECT_THAT(open_error(), HasSubstr("/meta/stats.json"));
  std::filesystem::copy(kData + "/lerobot_v21_stats.json", root_ + "/meta/stats.json");
  EXPECT_EQ(open_error(), "");
}

TEST_F(LeRobotV2, EpisodesOfManyChunksAreFound) {
  edit_json(root_ + "/meta/info.json", [](auto& info) { info["chunks_size"] = 4; });
  for (const std::string folder : {"/data/chunk-001", "/videos/chunk-001/observation.image"})
    std::filesystem::create_directories(root_ + folder);
  for (const char* episode : {"episode_000004", "episode_000005"}) {
    const std::string table = fmt::format("/{}.parquet", episode),
                      video = fmt::format("/observation.image/{}.mp4", episode);
    std::filesystem::rename(root_ + "/data/chunk-000" + table, root_ + "/data/chunk-001" + table);
    std::filesystem::rename(root_ + "/videos/chunk-000" + video, root_ + "/videos/chunk-001" + video);
  }
  EXPECT_EQ(open_error(), "");
}

TEST_F(LeRobotV2, MissingAndTruncatedFilesAreNamed) {
  for (const char* file :
       {"/meta/tasks.jsonl", "/meta/episodes.jsonl", "/meta/episodes_stats.jsonl",
        "/data/chunk-000/episode_000003.parquet", "/videos/chunk-000/observation.image/episode_000003.mp4"}) {
    const std::string whole = cxxrun::read_file(root_ + file);
    for (const size_t size : {size_t{0}, size_t{3}, whole.size() / 2}) {
      write_text(root_ + file, whole.substr(0, size));
      EXPECT_THAT(open_error(), HasSubstr(file)) << size;
    }
    std::filesystem::remove(root_ + file);
    EXPECT_THAT(open_error(), HasSubstr(file));
    write_text(root_ + file, whole);
  }
}

TEST_F(LeRobotV2, WrongTablesNameTheirLine) {
  const auto error_with = [&](const std::string& table, size_t line, const std::string& replacement) {
    const std::string path = root_ + "/meta/" + table, whole = cxxrun::read_file(path);
    std::string text;
    for (const std::string& other : lines_of(path)) text += (line-- == 0 ? replacement : other) + "\n";
    write_text(path, text);
    const std::string error = open_error();
    write_text(path, whole);
    return error;
  };
  EXPECT_THAT(error_with("tasks.jsonl", 1, R"({"task_index": 0, "task": "again"})"),
              AllOf(HasSubstr("tasks.jsonl"), HasSubstr("task_index 0"), HasSubstr("twice")));
  EXPECT_THAT(error_with("tasks.jsonl", 1, R"({"task_index": 1, "task": 5})"),
              AllOf(HasSubstr("tasks.jsonl: line 2"), HasSubstr("'task'"), HasSubstr("5")));
  EXPECT_THAT(error_with("tasks.jsonl", 1, "[1]"), HasSubstr("tasks.jsonl: line 2"));
  EXPECT_THAT(error_with("episodes.jsonl", 2, R"({"episode_index": 1, "length": 69})"),
              AllOf(HasSubstr("episodes.jsonl: line 3"), HasSubstr("episode_index 1 occurs twice")));
  EXPECT_THAT(error_with("episodes.jsonl", 2, R"({"episode_index": 9, "length": 69})"),
              AllOf(HasSubstr("episodes.jsonl: line 3"), HasSubstr("episode_index 9")));
  EXPECT_THAT(error_with("episodes.jsonl", 2, R"({"episode_index": 2, "length": -1})"),
              AllOf(HasSubstr("episodes.jsonl: line 3"), HasSubstr("length -1")));
  EXPECT_THAT(error_with("episodes.jsonl", 2, R"({"episode_index": 2, "length": 388})"),
              AllOf(HasSubstr("episodes.jsonl"), HasSubstr("more than the 388 frames")));
  EXPECT_THAT(error_with("episodes.jsonl", 2, ""),
              AllOf(HasSubstr("episodes.jsonl"), HasSubstr("episode 2 is missing")));
  EXPECT_THAT(error_with("episodes.jsonl", 2, R"({"episode_index": 2, "length": 68})"),
              AllOf(HasSubstr("total_frames 388"), HasSubstr("episodes.jsonl"), HasSubstr("387 frames")));
  EXPECT_THAT(error_with("episodes_stats.jsonl", 2, ""),
              AllOf(HasSubstr("episodes_stats.jsonl"), HasSubstr("5 episodes"), HasSubstr("dataset has 6")));
  EXPECT_THAT(error_with("episodes_stats.jsonl", 2, R"({"episode_index": 2, "stats": {"action": {"mean": [1, "x"]}}})"),
              AllOf(HasSubstr("episodes_stats.jsonl: line 3"), HasSubstr("'mean' of 'action'"), HasSubstr("\"x\"")));
  EXPECT_THAT(error_with("episodes_stats.jsonl", 2,
                         R"({"episode_index": 2, "stats": {"action": {"mean": [1], "count": [5]}}})"),
              AllOf(HasSubstr("episodes_stats.jsonl: line 3"), HasSubstr("'action'"), HasSubstr("1 values")));
}

TEST_F(LeRobotV2, RowsMustFitTheEpisode) {
  edit_json(root_ + "/meta/info.json", [](auto& info) { info["total_frames"] = 389; });
  edit_lines("episodes.jsonl", [](auto& line) {
    if (line["episode_index"] == 4) line["length"] = line["length"].template get<int>() + 1;
  });
  EXPECT_THAT(open_error(),
              AllOf(HasSubstr("episode_000004.parquet"), HasSubstr("rows"), HasSubstr("episodes.jsonl places")));
}

TEST_F(LeRobotV2, VideosMayBeLongerThanTheirRowsButNotShorter) {
  const auto video = [&](int episode) {
    return fmt::format("{}/videos/chunk-000/observation.image/episode_{:06d}.mp4", root_, episode);
  };
  std::filesystem::rename(video(0), root_ + "/50_frames.mp4");
  std::filesystem::copy(video(1), video(0));
  EXPECT_EQ(open_error(), "");
  std::filesystem::rename(root_ + "/50_frames.mp4", video(1));
  EXPECT_THAT(open_error(), AllOf(HasSubstr(video(1)), HasSubstr("50 frames, 55 needed"),
                                  HasSubstr("episode 1 frame 50"), HasSubstr("leave episode 1 out")));
}

}  // namespace
}  // namespace vla::data
