// tests/data/zarr_sample is written by scripts/reference/make_zarr_sample.py with zarr-python; the formulas are repeated here.
#include <cmath>
#include <random>

#include "common/error.hpp"
#include "tests/worker/data/support.hpp"
#include "worker/data/zarr/array.hpp"

namespace vla::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kFrames = 13, kHeight = 6, kWidth = 8;

std::vector<uint8_t> pixels(int64_t t, int64_t shift) {
  std::vector<uint8_t> result;
  for (int64_t y = 0; y < kHeight; ++y) {
    for (int64_t x = 0; x < kWidth; ++x) {
      for (int64_t c = 0; c < 3; ++c)
        result.push_back(static_cast<uint8_t>((29 * t + 11 * y + 5 * x + 83 * c + shift) % 256));
    }
  }
  return result;
}

std::vector<float> vector(int64_t t, int64_t size, float sign = 1, float offset = 0) {
  std::vector<float> result;
  for (int64_t i = 0; i < size; ++i)
    result.push_back(sign * (static_cast<float>(t) + static_cast<float>(i) / 16) + offset);
  return result;
}

const SampleRequest kEverything = {{"observation.images.head_camera", {}},
                                   {"observation.images.wrist", {}},
                                   {"observation.images.tiled", {}},
                                   {"observation.images.levels", {}},
                                   {"observation.images.plain_camera", {}},
                                   {"observation.state", {}},
                                   {"action", {}},
                                   {"f2", {}},
                                   {"f8", {}},
                                   {"i4", {}},
                                   {"i8", {}},
                                   {"u1", {}},
                                   {"b1", {}},
                                   {"one", {}},
                                   {"wide", {}}};

void expect_sample(const Sample& sample, int64_t t) {
  EXPECT_EQ(sample.get<uint8_t>("observation.images.head_camera"), pixels(t, 0));
  EXPECT_EQ(sample.get<uint8_t>("observation.images.wrist"), pixels(t, 100));
  EXPECT_EQ(sample.get<uint8_t>("observation.images.tiled"), pixels(t, 50));
  EXPECT_EQ(sample.get<uint8_t>("observation.images.levels"), pixels(t, 200));
  EXPECT_EQ(sample.get<uint8_t>("observation.images.plain_camera"), pixels(t, 7));
  EXPECT_EQ(sample.get<float>("observation.state"), vector(t, 5));
  EXPECT_EQ(sample.get<float>("action"), vector(t, 3, -1));
  EXPECT_EQ(sample.get<float>("f2"), vector(t, 2, 1, -3));
  EXPECT_EQ(sample.get<float>("f8"), vector(t, 2, 1, -3));
  // NumPy cuts fractions off towards 0.
  const std::vector<int64_t> whole = {t - 3, t < 3 ? t - 2 : t - 3};
  EXPECT_EQ(sample.get<int64_t>("i4"), whole);
  EXPECT_EQ(sample.get<int64_t>("i8"), whole);
  EXPECT_THAT(sample.get<int64_t>("u1"), ElementsAre(t, t));
  EXPECT_THAT(sample.get<uint8_t>("b1"), ElementsAre(t != 0, 1));
  EXPECT_THAT(sample.get<int64_t>("one"), ElementsAre(3 * t));
  EXPECT_EQ(sample.get<float>("wide"), vector(t, 100));
}

TEST(Zarr, EveryCompressorTypeAndLayoutIsReadInAnyOrder) {
  const auto dataset = open_dataset({.root = kData + "/zarr_sample"});
  const SampleLayout layout = dataset->layout(kEverything);
  const auto reader = dataset->open_reader(kEverything);
  std::mt19937 random(1);
  for (int64_t i = 0; i < 3 * kFrames; ++i) {
    const int64_t t = i < kFrames ? i : static_cast<int64_t>(random() % kFrames);
    SCOPED_TRACE(t);
    const Sample sample(layout, *reader, t);
    expect_sample(sample, t);
    EXPECT_EQ(sample.number("index"), t);
    EXPECT_EQ(sample.number("episode_index"), t < 5 ? 0 : 2);
    EXPECT_EQ(sample.number("frame_index"), t < 5 ? t : t - 5);
    EXPECT_EQ(sample.number("task_index"), 0);
  }
}

TEST(Zarr, DescribesWhatDiffusionPolicyWrites) {
  const auto dataset = open_dataset({.root = kData + "/zarr_sample/"});
  EXPECT_EQ(dataset->description(), "zarr, " + kData + "/zarr_sample");
  EXPECT_EQ(dataset->size(), kFrames);
  EXPECT_EQ(dataset->fps(), 20);
  EXPECT_THAT(dataset->tasks(), ElementsAre("stack the bowls"));
  ASSERT_EQ(dataset->episodes().size(), 2U) << "the empty one is none";
  EXPECT_EQ(dataset->episodes()[1].index, 2);
  std::map<std::string, Feature> features;
  for (const Feature& feature : dataset->features()) features[feature.key] = feature;
  EXPECT_EQ(features.size(), kEverything.size());
  EXPECT_EQ(features["observation.images.head_camera"].type, FeatureType::kVisual);
  EXPECT_THAT(features["observation.images.head_camera"].shape, ElementsAre(kHeight, kWidth, 3));
  EXPECT_EQ(features["observation.state"].type, FeatureType::kState);
  EXPECT_EQ(features["action"].type, FeatureType::kAction);
  EXPECT_EQ(features["wide"].type, FeatureType::kOther) << "a policy does not see it";
  EXPECT_THAT(message_of<cxxrun::UsageError>([&] {
                dataset->layout({{"text_feat", {}}});
              }),
              AllOf(HasSubstr("'text_feat'"), HasSubstr("1 rows"), HasSubstr("13 frames")));
}

TEST(Zarr, StatisticsAreNumpys) {
  const auto dataset = open_dataset({.root = kData + "/zarr_sample"});
  const nlohmann::json expected = read_json_file(kData + "/zarr_sample_stats.json");
  ASSERT_EQ(expected.size(), 5U);
  for (const auto& [key, of_feature] : expected.items()) {
    for (const auto& [stat, values] : of_feature.items()) {
      const StatTensor& tensor = dataset->stats().at(key).at(stat);
      ASSERT_EQ(tensor.values.size(), values.size()) << key;
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(tensor.values[i], values[i].get<double>(), 1e-12 * (1 + std::abs(values[i].get<double>())))
            << key << " " << stat;
    }
  }
  EXPECT_THAT(dataset->stats().at("observation.images.head_camera").at("mean").shape, ElementsAre(3, 1, 1));
  EXPECT_THAT(dataset->stats().at("action").at("count").values, ElementsAre(kFrames));
}

TEST(Zarr, EpisodeFilterKeepsRows) {
  const auto dataset = open_dataset({.root = kData + "/zarr_sample", .episodes = {2}});
  EXPECT_EQ(dataset->size(), 8);
  const SampleLayout layout = dataset->layout(kEverything);
  const auto reader = dataset->open_reader(kEverything);
  expect_sample(Sample(layout, *reader, 3), 8);
  const SampleRequest window = {{"action", {-1, 0, 1}}};
  const SampleLayout window_layout = dataset->layout(window);
  const Sample first(window_layout, *dataset->open_reader(window), 0);
  EXPECT_THAT(first.get<uint8_t>("action_is_pad"), ElementsAre(1, 0, 0));
}

// A copy of the sample, to be damaged.
class BrokenZarr : public testing::Test {
 protected:
  std::string error_of(const DatasetSpec& spec) const {
    return message_of<cxxrun::DataError>([&] {
      const auto dataset = open_dataset(spec);
      const SampleLayout layout = dataset->layout(kEverything);
      const auto reader = dataset->open_reader(kEverything);
      for (int64_t i = 0; i < dataset->size(); ++i) Sample(layout, *reader, i);
    });
  }
  std::string error() const { return error_of({.root = root_}); }
  template <class Edit>
  std::string error_with(const std::string& array, Edit edit) const {
    const std::string path = root_ + "/" + array + "/.zarray", whole = cxxrun::read_file(path);
    edit_json(path, edit);
    const std::string result = error();
    write_text(path, whole);
    return result;
  }

  TempDir dir_;
  const std::string root_ = dir_.copy("zarr_sample");
};

TEST_F(BrokenZarr, CopyIsFine) { EXPECT_EQ(error(), ""); }

TEST_F(BrokenZarr, WhatCannotBeReadIsNamed) {
  const auto set = [&](const char* key, const nlohmann::ordered_json& value) {
    return error_with("data/state", [&](auto& json) { json[key] = value; });
  };
  EXPECT_THAT(set("zarr_format", 3), AllOf(HasSubstr("data/state/.zarray"), HasSubstr("format 2")));
  EXPECT_THAT(set("order", "F"), HasSubstr("order is not 'C'"));
  EXPECT_THAT(set("dtype", ">f4"), HasSubstr("dtype '>f4'"));
  EXPECT_THAT(set("dtype", "|O"), HasSubstr("dtype '|O'"));
  EXPECT_THAT(set("dtype", {{"a", "<f4"}}), HasSubstr("dtype"));
  EXPECT_THAT(set("filters", {{{"id", "delta"}}}), HasSubstr("filters"));
  EXPECT_THAT(set("compressor", {{"id", "lzma"}}), AllOf(HasSubstr("compressor 'lzma'"), HasSubstr("blosc")));
  EXPECT_THAT(set("dimension_separator", "-"), HasSubstr("dimension_separator"));
  for (const nlohmann::ordered_json& sizes : std::vector<nlohmann::ordered_json>{
           {13, 0}, {-1, 5}, {int64_t{1} << 40, int64_t{1} << 40}, "x", nlohmann::ordered_json::array(), {1.5, 2}}) {
    EXPECT_THAT(set("shape", sizes), AllOf(HasSubstr("data/state/.zarray"), HasSubstr("'shape'"))) << sizes.dump();
    EXPECT_THAT(set("chunks", sizes), AllOf(HasSubstr("data/state/.zarray"), HasSubstr("'chunks'"))) << sizes.dump();
  }
  EXPECT_THAT(set("chunks", {4}), HasSubstr("2 numbers in 'shape', but 1 in 'chunks'"));
  EXPECT_THAT(set("shape", {12, 5}), AllOf(HasSubstr("data/state"), HasSubstr("12 rows"), HasSubstr("13 frames")));
  EXPECT_THAT(set("chunks", {5, 5}), AllOf(HasSubstr("data/state/0.0"), HasSubstr("80 bytes"), HasSubstr("100")));
  EXPECT_THAT(set("dtype", "<f8"), AllOf(HasSubstr("data/state/0.0"), HasSubstr("160")));
}

TEST_F(BrokenZarr, MissingShortAndDamagedChunksAreNamed) {
  for (const char* file :
       {"data/head_camera/2.0.0.0", "data/wrist/0/0/0/0", "data/tiled/1.0.1.1", "data/plain_camera/1.0.0.0",
        "data/state/1.0", "data/action/0.1", "data/f8/2.0", "data/i4/0.0", "meta/episode_ends/1"}) {
    const std::string path = root_ + "/" + file, whole = cxxrun::read_file(path);
    for (const size_t size : {size_t{0}, size_t{10}, whole.size() / 2, whole.size() - 1}) {
      write_text(path, whole.substr(0, size));
      EXPECT_THAT(error(), HasSubstr(file)) << size;
    }
    write_text(path, whole + whole);
    EXPECT_THAT(error(), HasSubstr(file));
    std::filesystem::remove(path);
    EXPECT_THAT(error(), HasSubstr(file));
    write_text(path, whole);
  }
}

TEST_F(BrokenZarr, AnyByteMayBeWrong) {
  std::mt19937 random(7);
  for (const char* file :
       {"data/head_camera/0.0.0.0", "data/wrist/0/0/0/0", "data/levels/0.0.0.0", "data/state/0.0", "data/action/0.0",
        "data/f8/0.0", "data/i4/0.0", "data/i8/0.0", "meta/episode_ends/0", "data/state/.zarray", ".zattrs"}) {
    const std::string path = root_ + "/" + file, whole = cxxrun::read_file(path);
    for (int i = 0; i < 60; ++i) {
      std::string text = whole;
      for (int changes = 0; changes < 1 + i % 3; ++changes)
        text[random() % (i % 2 == 0 ? std::min<size_t>(text.size(), 40) : text.size())] = static_cast<char>(random());
      write_text(path, text);
      error();  // an error or other values, but no crash
    }
    write_text(path, whole);
  }
}

TEST_F(BrokenZarr, FoldersAndEndsMustBeThere) {
  edit_json(root_ + "/.zattrs", [](auto& json) { json["fps"] = -1; });
  EXPECT_THAT(error(), AllOf(HasSubstr(".zattrs"), HasSubstr("fps is -1")));
  std::filesystem::remove(root_ + "/.zattrs");
  EXPECT_EQ(open_dataset({.root = root_})->fps(), 10);
  std::filesystem::remove_all(root_ + "/meta/episode_ends");
  EXPECT_THAT(error(), AllOf(HasSubstr(root_), HasSubstr("meta/episode_ends")));
}

TEST_F(BrokenZarr, ValuesMustBeFinite) {
  edit_json(root_ + "/data/state/.zarray", [](auto& json) { json["compressor"] = nullptr; });
  for (int block = 0; block < 4; ++block) {
    std::vector<float> values(20, 1);
    if (block == 1) values[13] = NAN;  // row 6, value 3
    write_text(fmt::format("{}/data/state/{}.0", root_, block),
               std::string(reinterpret_cast<char*>(values.data()), 80));
  }
  EXPECT_THAT(error(), AllOf(HasSubstr("data/state"), HasSubstr("episode 2 frame 1 (row 6): value 3")));
  EXPECT_EQ(error_of({.root = root_, .episodes = {0}}), "") << "the remedy works";
  EXPECT_EQ(open_dataset({.root = root_, .skip_broken = true})->size(), 5);
}

TEST_F(BrokenZarr, EpisodesWithBrokenChunksCanBeLeftOut) {
  const auto left = [&] {
    const auto dataset = open_dataset({.root = root_, .skip_broken = true});
    EXPECT_EQ(dataset->broken_episodes(), 1);
    EXPECT_EQ(error_of({.root = root_, .skip_broken = true}), "") << "what is left can be read";
    return dataset->episodes()[0].index;
  };
  const std::string camera = root_ + "/data/head_camera/3.0.0.0", whole = cxxrun::read_file(camera);
  std::filesystem::remove(camera);
  EXPECT_EQ(left(), 0);
  write_text(camera, whole);
  const std::string state = root_ + "/data/state/0.0";
  write_text(state, cxxrun::read_file(state).substr(0, 60));
  EXPECT_EQ(left(), 2);
  std::filesystem::remove(root_ + "/data/wrist/0/0/0/0");
  EXPECT_THAT(message_of<cxxrun::DataError>([&] { open_dataset({.root = root_, .skip_broken = true}); }),
              HasSubstr("all selected episodes are broken"));
}

TEST_F(BrokenZarr, PicturesOfFloatsMustBeBrightnesses) {
  edit_json(root_ + "/data/levels/.zarray", [](auto& json) { json["compressor"] = nullptr; });
  const auto fill = [&](float value) {
    const std::vector<float> values(6 * kHeight * kWidth * 3, value);
    for (int block = 0; block < 3; ++block) {
      write_text(fmt::format("{}/data/levels/{}.0.0.0", root_, block),
                 std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
    }
  };
  fill(0.5F);
  EXPECT_THAT(error(), AllOf(HasSubstr("data/levels"), HasSubstr("uint8")));
  fill(256);
  EXPECT_THAT(error(), AllOf(HasSubstr("data/levels"), HasSubstr("256")));
  fill(NAN);
  EXPECT_THAT(error(), AllOf(HasSubstr("data/levels"), HasSubstr("nan")));
}

TEST(ZarrItems, FloatsThatAreNoBytesBecomeTheNearest) {
  const std::vector<float> items = {NAN, -3.5F, 0.9F, 254.2F, 255, 1e30F, INFINITY};
  std::vector<uint8_t> bytes(items.size());
  convert_items({'f', 4}, std::as_bytes(std::span(items)), DType::kUInt8, reinterpret_cast<std::byte*>(bytes.data()));
  EXPECT_THAT(bytes, ElementsAre(0, 0, 0, 254, 255, 255, 255));
}

}  // namespace
}  // namespace vla::data
