#include "worker/data/zarr/merge.hpp"

#include "common/error.hpp"
#include "tests/worker/data/support.hpp"
#include "worker/data/zarr/array_writer.hpp"
#include "worker/data/zarr/replay_buffer.hpp"

namespace vla::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ZarrMerge : public testing::Test {
 protected:
  // A buffer whose state and action have `width` columns: value = frame + column / 8 + base.
  std::string make(const std::string& name, std::vector<int64_t> ends, int64_t width, float base) const {
    const std::string root = dir_.path() + "/" + name;
    for (const char* group : {"", "/data", "/meta"}) {
      std::filesystem::create_directories(root + group);
      write_text(root + group + "/.zgroup", R"({"zarr_format": 2})");
    }
    for (const char* array : {"/data/state", "/data/action"}) {
      ZarrArrayWriter writer(root + array, {ends.back(), width}, {'f', 4});
      for (int64_t frame = 0; frame < ends.back(); ++frame) {
        std::vector<float> row;
        for (int64_t i = 0; i < width; ++i) row.push_back(base + static_cast<float>(frame) + static_cast<float>(i) / 8);
        writer.append(std::as_bytes(std::span(row)));
      }
      writer.finish();
    }
    ZarrArrayWriter writer(root + "/meta/episode_ends", {static_cast<int64_t>(ends.size())}, {'i', 8});
    for (const int64_t& end : ends) writer.append(std::as_bytes(std::span(&end, 1)));
    writer.finish();
    return root;
  }
  std::vector<float> state(const std::string& root, int64_t sample) const {
    const auto dataset = open_dataset({.root = root});
    const SampleRequest request = {{"observation.state", {}}};
    const SampleLayout layout = dataset->layout(request);
    return Sample(layout, *dataset->open_reader(request), sample).get<float>("observation.state");
  }

  TempDir dir_;
  const std::string output_ = dir_.path() + "/merged.zarr";
};

TEST_F(ZarrMerge, AppendsEpisodes) {
  const std::string a = make("a", {3, 7}, 4, 0), b = make("b", {5}, 4, 100);
  const MergeResult result = merge_zarr({b, a, b}, output_ + "/", {});
  EXPECT_EQ(result.episodes, 4);
  EXPECT_EQ(result.frames, 17);
  EXPECT_THAT(result.arrays, ElementsAre("data/action", "data/state"));
  EXPECT_THAT(ReplayBuffer(output_).ends, ElementsAre(5, 8, 12, 17));
  EXPECT_THAT(state(output_, 4), ElementsAre(104, 104.125, 104.25, 104.375));
  EXPECT_THAT(state(output_, 5), ElementsAre(0, 0.125, 0.25, 0.375));
  EXPECT_THAT(state(output_, 12)[0], 100);
}

TEST_F(ZarrMerge, KeepsTheLastColumnsOrPadsWithZeros) {
  const std::string a = make("a", {3}, 4, 0), b = make("b", {2}, 2, 100);
  EXPECT_THAT(message_of<cxxrun::DataError>([&] {
                merge_zarr({a, b}, output_, {});
              }),
              AllOf(HasSubstr(b + "/data/action"), HasSubstr("[2]"), HasSubstr("[4]"), HasSubstr("--action-width")));
  EXPECT_FALSE(std::filesystem::exists(output_));
  merge_zarr({a, b}, output_, {.action_width = 3});
  EXPECT_THAT(state(output_, 1), ElementsAre(1.125, 1.25, 1.375));
  EXPECT_THAT(state(output_, 3), ElementsAre(100, 100.125, 0));
}

TEST_F(ZarrMerge, ManyChunksStayWhole) {
  const std::string sample = kData + "/zarr_sample";
  const MergeResult result = merge_zarr({sample, sample}, output_, {});
  EXPECT_THAT(ReplayBuffer(output_).ends, ElementsAre(5, 5, 13, 18, 18, 26));
  const auto merged = open_dataset({.root = output_}), original = open_dataset({.root = sample});
  EXPECT_EQ(merged->fps(), 20);
  EXPECT_THAT(merged->tasks(), ElementsAre("stack the bowls"));
  SampleRequest request;
  for (const Feature& feature : original->features()) request.push_back({feature.key, {}});
  const SampleLayout layout = merged->layout(request);
  const auto reader = merged->open_reader(request), in_original = original->open_reader(request);
  for (int64_t i = 0; i < 26; ++i) {
    const Sample sample_of_merged(layout, *reader, i), expected(layout, *in_original, i % 13);
    for (const Feature& feature : original->features())
      EXPECT_EQ(sample_of_merged.get<std::byte>(feature.key), expected.get<std::byte>(feature.key))
          << feature.key << " " << i;
  }
  // One row in all is spread over the frames.
  const SampleRequest text = {{"text_feat", {}}};
  const SampleLayout text_layout = merged->layout(text);
  EXPECT_THAT(Sample(text_layout, *merged->open_reader(text), 20).get<float>("text_feat"), ElementsAre(1, 1, 1, 1));
}

TEST_F(ZarrMerge, ArraysThatSomeLackAreLeftOut) {
  const std::string a = make("a", {3}, 4, 0), b = make("b", {2}, 4, 100);
  std::filesystem::copy(b + "/data/state", b + "/data/extra", std::filesystem::copy_options::recursive);
  EXPECT_THAT(merge_zarr({a, b}, output_, {}).left_out, ElementsAre("data/extra"));
  EXPECT_FALSE(std::filesystem::exists(output_ + "/data/extra"));
}

TEST_F(ZarrMerge, NothingIsOverwrittenAndNothingRemainsAfterAFailure) {
  const std::string a = make("a", {3}, 4, 0);
  std::filesystem::create_directory(output_);
  EXPECT_THAT(message_of<cxxrun::UsageError>([&] { merge_zarr({a}, output_, {}); }), HasSubstr(output_ + " exists"));
  std::filesystem::remove(output_);
  std::filesystem::remove(a + "/data/state/0.0");
  EXPECT_THAT(message_of<cxxrun::DataError>([&] { merge_zarr({a}, output_, {}); }), HasSubstr(a + "/data/state/0.0"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}), 1) << "only the input";
}

TEST(ZarrArrayWriter, ChunksFollowDiffusionPolicysRule) {
  const TempDir dir;
  const auto chunk_rows = [&](std::vector<int64_t> shape, ItemType type) {
    ZarrArrayWriter(dir.path() + "/x", shape, type);
    return read_json_file(dir.path() + "/x/.zarray")["chunks"][0].get<int64_t>();
  };
  EXPECT_EQ(chunk_rows({412410, 3, 240, 320}, {'u', 1}), 9);
  EXPECT_EQ(chunk_rows({412410, 3, 256, 256}, {'u', 1}), 11);
  EXPECT_EQ(chunk_rows({412410, 14}, {'f', 4}), 35715);
  EXPECT_EQ(chunk_rows({1000, 14}, {'f', 4}), 1000);
}

TEST(ZarrArrayWriter, ChunksCompressedByManyThreadsComeBack) {
  const TempDir dir;
  constexpr int64_t kRows = 7, kWidth = 100'000;
  std::vector<float> values;
  for (int64_t i = 0; i < kRows * kWidth; ++i) values.push_back(static_cast<float>(i * i % 10'007));
  const auto bytes = std::as_bytes(std::span(values));
  ZarrArrayWriter writer(dir.path() + "/x", {kRows, kWidth}, {'f', 4}, 5);
  for (size_t row = 0; row < kRows; ++row) writer.append(bytes.subspan(row * writer.row_bytes(), writer.row_bytes()));
  writer.finish();
  const ZarrArray array(dir.path() + "/x", "x");
  ASSERT_EQ(array.block_count(), 2);
  std::vector<std::byte> read = array.read_block(0);
  const std::vector<std::byte> second = array.read_block(1);
  read.insert(read.end(), second.begin(), second.end());
  EXPECT_TRUE(std::equal(read.begin(), read.end(), bytes.begin(), bytes.end()));
}

}  // namespace
}  // namespace vla::data
