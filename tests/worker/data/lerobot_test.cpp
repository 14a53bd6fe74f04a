#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "common/error.hpp"
#include "tests/worker/data/support.hpp"

namespace vla::data {
namespace {

using nlohmann::json;

SampleRequest everything(const Dataset& dataset, int64_t chunk) {
  SampleRequest request;
  for (const Feature& feature : dataset.features()) {
    FieldRequest& field = request.emplace_back(FieldRequest{feature.key, {}});
    for (int64_t i = 0; feature.key == "action" && i < chunk; ++i) field.deltas.push_back(i);
  }
  return request;
}

int64_t sample_at(const Dataset& dataset, int64_t episode, int64_t frame) {
  for (const Episode& e : dataset.episodes()) {
    if (e.index == episode) return e.begin + frame;
  }
  throw std::out_of_range("episode");
}

void expect_picture(const Sample& sample, const std::string& camera, const json& expected, const json& grid,
                    int tolerance) {
  ASSERT_EQ(sample.shape(camera), expected["shape_hwc"].get<std::vector<int64_t>>());
  const auto pixels = sample.get<uint8_t>(camera);
  const int64_t width = sample.shape(camera)[1];
  const auto rows = expected["rows"].get<std::vector<int64_t>>(),
             columns = expected["cols"].get<std::vector<int64_t>>();
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t c = 0; c < columns.size(); ++c) {
      for (size_t k = 0; k < 3; ++k) {
        EXPECT_NEAR(pixels[static_cast<size_t>((rows[r] * width + columns[c]) * 3) + k], grid[r][c][k].get<int>(),
                    tolerance)
            << camera << " row " << rows[r] << " column " << columns[c] << " channel " << k;
      }
    }
  }
}

void expect_numbers(const Dataset& dataset, const Sample& sample, const json& expected) {
  EXPECT_EQ(sample.number("index"), expected["index"]);
  EXPECT_EQ(sample.number("episode_index"), expected["episode"]);
  EXPECT_EQ(sample.number("frame_index"), expected["frame"]);
  EXPECT_EQ(sample.number("task_index"), expected["task_index"]);
  EXPECT_EQ(dataset.tasks().at(static_cast<size_t>(sample.number("task_index"))), expected["task"]);
  EXPECT_EQ(sample.get<float>("timestamp").at(0), expected["timestamp"].get<float>());
  EXPECT_EQ(sample.get<float>("observation.state"), expected["state"].get<std::vector<float>>());
  std::vector<float> chunk;
  for (const json& row : expected["action_chunk"]) {
    for (const json& value : row) chunk.push_back(value.get<float>());
  }
  EXPECT_EQ(sample.get<float>("action"), chunk);
  EXPECT_EQ(sample.shape("action").back(), static_cast<int64_t>(expected["action_chunk"][0].size()));
  std::vector<bool> is_pad;
  for (const uint8_t value : sample.get<uint8_t>("action_is_pad")) is_pad.push_back(value != 0);
  EXPECT_EQ(is_pad, expected["action_is_pad"].get<std::vector<bool>>());
}

class Demo : public testing::TestWithParam<const char*> {};

// Values of LeRobot's own reader.
TEST_P(Demo, EqualsLeRobotsReader) {
  const std::string root = kData + "/" + GetParam();
  if (!std::filesystem::exists(root)) GTEST_SKIP() << root << " is not here";
  const json expected = read_json_file(kData + "/expected.json");
  const json& of_dataset = expected["datasets"][GetParam()];
  const auto dataset = open_dataset({.root = root});
  EXPECT_EQ(dataset->size(), of_dataset["total_frames"]);
  EXPECT_EQ(dataset->fps(), of_dataset["fps"]);
  const SampleRequest request = everything(*dataset, expected["action_chunk_length"]);
  const SampleLayout layout = dataset->layout(request);
  const auto reader = dataset->open_reader(request);
  for (const json& wanted : of_dataset["samples"]) {
    SCOPED_TRACE(testing::Message() << "episode " << wanted["episode"] << " frame " << wanted["frame"]);
    const Sample sample(layout, *reader, sample_at(*dataset, wanted["episode"], wanted["frame"]));
    expect_numbers(*dataset, sample, wanted);
    EXPECT_EQ(sample.get<float>("next.reward").at(0), wanted["next.reward"].get<float>());
    EXPECT_EQ(sample.get<uint8_t>("next.success").at(0), wanted["next.success"].get<bool>());
    for (const auto& [camera, picture] : wanted["images"].items()) {
      expect_picture(sample, camera, picture, picture["grid_rgb"], 1);
      double mean[3] = {};
      const auto pixels = sample.get<uint8_t>(camera);
      for (size_t i = 0; i < pixels.size(); ++i) mean[i % 3] += pixels[i];
      for (size_t k = 0; k < 3; ++k)
        EXPECT_NEAR(mean[k] * 3 / static_cast<double>(pixels.size()), picture["mean_rgb"][k].get<double>(), 0.5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(LeRobot, Demo, testing::Values("metaworld_demo", "lerobot_h264", "lerobot_png", "lerobot_v21"),
                         [](const auto& name) { return std::string(name.param); });

// Inputs that broke other readers; "source" in each case.json says where.
class Hard : public testing::TestWithParam<const char*> {};

TEST_P(Hard, IsReadRight) {
  const std::string folder = kData + "/hard/" + GetParam();
  const json test = read_json_file(folder + "/case.json");
  const std::string root = folder + "/" + test["open"]["root"].get<std::string>();
  const auto dataset = open_dataset({.root = root});
  const SampleRequest request = everything(*dataset, test["action_chunk_length"]);
  const SampleLayout layout = dataset->layout(request);
  const auto reader = dataset->open_reader(request);
  for (const json& wanted : test["values"]) {
    SCOPED_TRACE(testing::Message() << "episode " << wanted["episode"] << " frame " << wanted["frame"]);
    const Sample sample(layout, *reader, sample_at(*dataset, wanted["episode"], wanted["frame"]));
    expect_numbers(*dataset, sample, wanted);
    for (const auto& [camera, picture] : wanted["images"].items())
      expect_picture(sample, camera, picture, picture["rgb"], test["rgb_tolerance"]);
  }
}

INSTANTIATE_TEST_SUITE_P(LeRobot, Hard,
                         testing::Values("hevc_backward_seek", "leftover_frames_between_episodes",
                                         "one_number_state_action", "rotated_camera", "tasks_out_of_order",
                                         "tenbit_full_range", "trimmed_by_edit_list", "video_files_differ_from_data"),
                         [](const auto& name) { return std::string(name.param); });

// The first episode of a v3 dataset with one data file, in v2.1's layout. Its videos may be longer than it.
void write_first_episode_as_v2(const std::string& from, const std::string& to, int64_t length) {
  std::filesystem::create_directories(to + "/meta");
  const std::string rows = from + "/data/chunk-000/file-000.parquet";
  const auto table =
      parquet::arrow::OpenFile(arrow::io::ReadableFile::Open(rows).ValueOrDie(), arrow::default_memory_pool())
          .ValueOrDie()
          ->ReadTable()
          .ValueOrDie();
  std::filesystem::create_directories(to + "/data/chunk-000");
  const auto file = arrow::io::FileOutputStream::Open(to + "/data/chunk-000/episode_000000.parquet").ValueOrDie();
  ASSERT_TRUE(parquet::arrow::WriteTable(*table->Slice(0, length), arrow::default_memory_pool(), file).ok());
  ASSERT_TRUE(file->Close().ok());

  json info = read_json_file(from + "/meta/info.json");
  info["codebase_version"] = "v2.1";
  info["total_episodes"] = 1;
  info["total_frames"] = length;
  info["data_path"] = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet";
  info["video_path"] = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4";
  write_text(to + "/meta/info.json", info.dump());
  for (const auto& [key, feature] : info["features"].items()) {
    if (feature["dtype"] != "video") continue;
    std::filesystem::create_directories(to + "/videos/chunk-000/" + key);
    std::filesystem::copy(from + "/videos/" + key + "/chunk-000/file-000.mp4",
                          to + "/videos/chunk-000/" + key + "/episode_000000.mp4");
  }
  write_text(to + "/meta/episodes.jsonl",
             json{{"episode_index", 0}, {"tasks", json::array()}, {"length", length}}.dump());
  write_text(to + "/meta/episodes_stats.jsonl",
             json{{"episode_index", 0}, {"stats", read_json_file(from + "/meta/stats.json")}}.dump());
  std::string tasks;
  const std::vector<std::string> texts = open_dataset({.root = from})->tasks();
  for (size_t i = texts.size(); i-- > 0;) tasks += json{{"task_index", i}, {"task", texts[i]}}.dump() + "\n";
  write_text(to + "/meta/tasks.jsonl", tasks);
}

class HardV2 : public testing::TestWithParam<const char*> {};

TEST_P(HardV2, IsReadRightFromFilesOfOneEpisode) {
  const std::string folder = kData + "/hard/" + GetParam();
  const json test = read_json_file(folder + "/case.json");
  const auto v3 = open_dataset({.root = folder + "/data"});
  const TempDir dir;
  write_first_episode_as_v2(folder + "/data", dir.path(), v3->episodes()[0].end);
  const auto dataset = open_dataset({.root = dir.path()});
  EXPECT_THAT(dataset->description(), testing::StartsWith("LeRobot v2.1"));
  const SampleRequest request = everything(*dataset, test["action_chunk_length"]);
  const SampleLayout layout = dataset->layout(request);
  const auto reader = dataset->open_reader(request);
  for (const json& wanted : test["values"]) {
    if (wanted["episode"] != 0) continue;
    SCOPED_TRACE(testing::Message() << "frame " << wanted["frame"]);
    const Sample sample(layout, *reader, wanted["frame"]);
    expect_numbers(*dataset, sample, wanted);
    for (const auto& [camera, picture] : wanted["images"].items())
      expect_picture(sample, camera, picture, picture["rgb"], test["rgb_tolerance"]);
  }
}

INSTANTIATE_TEST_SUITE_P(LeRobot, HardV2,
                         testing::Values("hevc_backward_seek", "one_number_state_action", "rotated_camera",
                                         "tasks_out_of_order", "tenbit_full_range", "trimmed_by_edit_list"),
                         [](const auto& name) { return std::string(name.param); });

TEST(LeRobot, ScrambledOrderEqualsSequential) {
  for (const char* name : {"lerobot_h264", "lerobot_png", "hard/hevc_backward_seek/data",
                           "hard/trimmed_by_edit_list/data", "hard/video_files_differ_from_data/data"}) {
    SCOPED_TRACE(name);
    const auto dataset = open_dataset({.root = kData + "/" + name});
    const SampleRequest request = everything(*dataset, 3);
    const SampleLayout layout = dataset->layout(request);
    const int64_t size = std::min<int64_t>(dataset->size(), 150);
    std::vector<Sample> sequential;
    const auto reader = dataset->open_reader(request);
    for (int64_t i = 0; i < size; ++i) sequential.emplace_back(layout, *reader, i);
    std::mt19937 random(1);
    for (int i = 0; i < 200; ++i) {
      const auto index = static_cast<int64_t>(random() % static_cast<uint64_t>(size));
      ASSERT_TRUE(Sample(layout, *reader, index) == sequential[static_cast<size_t>(index)]) << index;
    }
  }
}

TEST(LeRobot, DeltasStayInsideTheEpisode) {
  const auto dataset = open_dataset({.root = kData + "/lerobot_png"});
  const SampleRequest request = {{"observation.state", {-2, 0, 1}}, {"observation.image", {-1, 0}}};
  const SampleLayout layout = dataset->layout(request);
  const auto reader = dataset->open_reader(request);
  const auto state = [&](int64_t i) { return Sample(layout, *reader, i).get<float>("observation.state"); };
  const std::vector<float> first = state(50), next = state(51);  // episode 1 begins at 50
  EXPECT_TRUE(std::equal(first.begin(), first.begin() + 4, first.begin() + 4)) << "the first frame is repeated";
  EXPECT_TRUE(std::equal(first.begin() + 8, first.end(), next.begin() + 4));
  const Sample sample(layout, *reader, 50);
  EXPECT_EQ(sample.get<uint8_t>("observation.state_is_pad"), (std::vector<uint8_t>{1, 0, 0}));
  EXPECT_EQ(sample.get<uint8_t>("observation.image_is_pad"), (std::vector<uint8_t>{1, 0}));
  EXPECT_EQ(sample.shape("observation.image"), (std::vector<int64_t>{2, 64, 64, 3}));
}

TEST(LeRobot, EpisodeFilterKeepsRowsAndPictures) {
  const auto all = open_dataset({.root = kData + "/lerobot_h264"}),
             some = open_dataset({.root = kData + "/lerobot_h264", .episodes = {30, 2}});
  ASSERT_EQ(some->episodes().size(), 2U);
  EXPECT_EQ(some->episodes()[0].index, 2);
  EXPECT_EQ(some->size(), 45 + 79);
  const SampleRequest request = everything(*all, 3);
  const SampleLayout layout = all->layout(request);
  EXPECT_TRUE(Sample(layout, *some->open_reader(request), 45 + 7) ==
              Sample(layout, *all->open_reader(request), all->episodes()[30].begin + 7));
  EXPECT_THAT(message_of<cxxrun::UsageError>([] { open_dataset({.root = kData + "/lerobot_h264", .episodes = {36}}); }),
              testing::HasSubstr("no episode 36, the dataset has 0 to 35"));
}

TEST(LeRobot, DescribesFeaturesAndStats) {
  const auto dataset = open_dataset({.root = kData + "/lerobot_png"});
  std::map<std::string, FeatureType> types;
  for (const Feature& feature : dataset->features()) types[feature.key] = feature.type;
  EXPECT_EQ(types["observation.wrist_image"], FeatureType::kVisual);
  EXPECT_EQ(types["observation.state"], FeatureType::kState);
  EXPECT_EQ(types["action"], FeatureType::kAction);
  EXPECT_EQ(types["next.reward"], FeatureType::kOther);
  EXPECT_FALSE(types.contains("index"));
  EXPECT_EQ(dataset->stats().at("observation.image").at("mean").shape, (std::vector<int64_t>{3, 1, 1}));
  EXPECT_EQ(dataset->stats().at("action").at("std").values.size(), 4U);
}

}  // namespace
}  // namespace vla::data
