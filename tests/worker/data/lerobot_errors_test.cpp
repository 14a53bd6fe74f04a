// Datasets that are broken in one place each: the message names the file and the place, before any training.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>

#include <cmath>
#include <fstream>

#include "common/error.hpp"
#include "tests/worker/data/support.hpp"

namespace vla::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kRows[] = "/data/chunk-000/file-000.parquet";
constexpr char kEpisodes[] = "/meta/episodes/chunk-000/file-000.parquet";

std::string open_error(const std::string& root) {
  return message_of<cxxrun::DataError>([&] {
    open_dataset({.root = root})->layout({{"observation.state", {}}, {"action", {}}});
  });
}

std::shared_ptr<arrow::Table> read_table(const std::string& path) {
  const auto file = arrow::io::ReadableFile::Open(path).ValueOrDie();
  return parquet::arrow::OpenFile(file, arrow::default_memory_pool()).ValueOrDie()->ReadTable().ValueOrDie();
}

void write_table(const arrow::Table& table, const std::string& path) {
  const auto file = arrow::io::FileOutputStream::Open(path).ValueOrDie();
  ASSERT_TRUE(parquet::arrow::WriteTable(table, arrow::default_memory_pool(), file).ok());
  ASSERT_TRUE(file->Close().ok());
}

void replace_column(const std::string& path, const std::string& name, const std::shared_ptr<arrow::Array>& values) {
  const auto table = read_table(path);
  const int column = table->schema()->GetFieldIndex(name);
  write_table(
      **table->SetColumn(column, arrow::field(name, values->type()), std::make_shared<arrow::ChunkedArray>(values)),
      path);
}

std::shared_ptr<arrow::Array> integers(const std::vector<int64_t>& values) {
  arrow::Int64Builder builder;
  EXPECT_TRUE(builder.AppendValues(values).ok());
  return builder.Finish().ValueOrDie();
}

// list<float> of `rows` rows of `size` zeros, with `value` at entry 1 of row `at`.
std::shared_ptr<arrow::Array> vectors(int64_t rows, int64_t size, int64_t at = 0, float value = 0) {
  const auto values = std::make_shared<arrow::FloatBuilder>();
  arrow::ListBuilder lists(arrow::default_memory_pool(), values);
  for (int64_t row = 0; row < rows; ++row) {
    EXPECT_TRUE(lists.Append().ok());
    for (int64_t i = 0; i < size; ++i) EXPECT_TRUE(values->Append(row == at && i == 1 ? value : 0).ok());
  }
  return lists.Finish().ValueOrDie();
}

// 150 rows in episodes of 50, 55 and 45.
class BrokenDataset : public testing::Test {
 protected:
  TempDir dir_;
  const std::string root_ = dir_.copy("lerobot_png");
};

TEST_F(BrokenDataset, EndlessNestingIsRefusedBeforeItTakesTheStack) {
  const int depth = 1'000'000;
  std::ofstream(root_ + "/meta/info.json") << "{\"fps\": " << std::string(depth, '[') << std::string(depth, ']') << "}";
  EXPECT_THAT(open_error(root_), AllOf(HasSubstr("meta/info.json"), HasSubstr("nested")));
}

TEST_F(BrokenDataset, CopyIsFine) { EXPECT_EQ(open_error(root_), ""); }

TEST_F(BrokenDataset, MissingFilesAreNamed) {
  for (const char* file : {"/meta/stats.json", "/meta/tasks.parquet", kRows, kEpisodes}) {
    std::filesystem::rename(root_ + file, root_ + "/away");
    EXPECT_THAT(open_error(root_), HasSubstr(std::string_view(file) == kEpisodes ? "/meta/episodes" : file));
    std::filesystem::rename(root_ + "/away", root_ + file);
  }
}

TEST_F(BrokenDataset, TruncatedFilesAreNamed) {
  for (const char* file : {"/meta/info.json", "/meta/stats.json", "/meta/tasks.parquet", kRows, kEpisodes}) {
    const std::string whole = cxxrun::read_file(root_ + file);
    for (const size_t size : {size_t{0}, size_t{3}, whole.size() / 2, whole.size() - 2}) {
      write_text(root_ + file, whole.substr(0, size));
      EXPECT_THAT(open_error(root_), HasSubstr(file)) << size;
    }
    write_text(root_ + file, whole);
  }
}

TEST_F(BrokenDataset, DamagedRowsAreNamed) {
  std::string rows = cxxrun::read_file(root_ + kRows);
  rows.replace(rows.size() / 2, 5000, 5000, '\x55');
  write_text(root_ + kRows, rows);
  EXPECT_THAT(message_of<cxxrun::DataError>([&] {
                const auto dataset = open_dataset({.root = root_});
                const SampleRequest request = {{"observation.image", {}}, {"observation.wrist_image", {}}};
                const SampleLayout layout = dataset->layout(request);
                const auto reader = dataset->open_reader(request);
                for (int64_t i = 0; i < dataset->size(); ++i) Sample(layout, *reader, i);
              }),
              HasSubstr(kRows));
}

TEST_F(BrokenDataset, OtherVersionsAreRefused) {
  edit_json(root_ + "/meta/info.json", [](auto& info) { info["codebase_version"] = "v1.6"; });
  EXPECT_THAT(open_error(root_), AllOf(HasSubstr("meta/info.json"), HasSubstr("v1.6"), HasSubstr("convert")));
  edit_json(root_ + "/meta/info.json", [](auto& info) { info["codebase_version"] = "v9"; });
  EXPECT_THAT(open_error(root_), HasSubstr("'v9'"));
  edit_json(root_ + "/meta/info.json", [](auto& info) { info["codebase_version"] = 3; });
  EXPECT_THAT(open_error(root_), HasSubstr("codebase_version"));
}

TEST_F(BrokenDataset, PathsStayInside) {
  for (const char* pattern : {"../{chunk_index}/x.parquet", "/etc/{chunk_index:03d}", "data/../../{file_index}",
                              "data/{chunk_index:99999999d}", "data/{x}", "data/{chunk_index"}) {
    edit_json(root_ + "/meta/info.json", [&](auto& info) { info["data_path"] = pattern; });
    EXPECT_THAT(open_error(root_), AllOf(HasSubstr("meta/info.json"), HasSubstr(pattern)));
  }
}

TEST_F(BrokenDataset, ShapesMustFitInfo) {
  const auto set_shape = [&](const char* key, std::vector<int64_t> shape) {
    edit_json(root_ + "/meta/info.json", [&](auto& info) { info["features"][key]["shape"] = shape; });
  };
  set_shape("observation.state", {5});
  EXPECT_THAT(open_error(root_), AllOf(HasSubstr(kRows), HasSubstr("'observation.state', row 0"),
                                       HasSubstr("list of 4"), HasSubstr("declares 5")));
  set_shape("observation.state", {4, 2});
  EXPECT_THAT(open_error(root_), AllOf(HasSubstr("'observation.state'"), HasSubstr("shape [4, 2]")));
  set_shape("observation.state", {int64_t{1} << 40});
  EXPECT_THAT(open_error(root_),
              AllOf(HasSubstr("meta/info.json"), HasSubstr("observation.state"), HasSubstr("shape")));
  set_shape("observation.state", {4});
  set_shape("observation.image", {32, 64, 3});
  EXPECT_THAT(message_of<cxxrun::DataError>([&] {
                const auto dataset = open_dataset({.root = root_});
                const SampleRequest request = {{"observation.image", {}}};
                Sample(dataset->layout(request), *dataset->open_reader(request), 51);
              }),
              AllOf(HasSubstr(kRows), HasSubstr("episode 1 frame 1"), HasSubstr("64x64"), HasSubstr("32x64")));
}

TEST_F(BrokenDataset, ColumnsMustExist) {
  const auto table = read_table(root_ + kRows);
  write_table(**table->RemoveColumn(table->schema()->GetFieldIndex("action")), root_ + kRows);
  EXPECT_THAT(open_error(root_), AllOf(HasSubstr(kRows), HasSubstr("no column 'action'")));
}

TEST_F(BrokenDataset, ValuesMustBeFinite) {
  replace_column(root_ + kRows, "action", vectors(150, 4, 60, NAN));
  EXPECT_THAT(open_error(root_), AllOf(HasSubstr(kRows), HasSubstr("episode 1 frame 10 (row 60"),
                                       HasSubstr("'action'[1] is nan"), HasSubstr("dataset.episodes")));
  EXPECT_NO_THROW(open_dataset({.root = root_, .episodes = {0, 2}})->layout({{"action", {}}})) << "the remedy works";
  EXPECT_NO_THROW(open_dataset({.root = root_})->layout({{"observation.state", {}}})) << "not asked for";
}

TEST_F(BrokenDataset, ListsMustHaveOneLength) {
  replace_column(root_ + kRows, "action", vectors(150, 3));
  EXPECT_THAT(open_error(root_), AllOf(HasSubstr(kRows), HasSubstr("'action', row 0"), HasSubstr("list of 3")));
}

TEST_F(BrokenDataset, StatsMustBeFiniteAndFit) {
  edit_json(root_ + "/meta/stats.json", [](auto& stats) { stats["action"]["std"][2] = "NAN"; });
  std::string text = cxxrun::read_file(root_ + "/meta/stats.json");
  text.replace(text.find("\"NAN\""), 5, "NaN");  // as Python writes it
  write_text(root_ + "/meta/stats.json", text);
  EXPECT_THAT(open_error(root_), AllOf(HasSubstr("meta/stats.json"), HasSubstr("'std' of 'action'"),
                                       HasSubstr("position 2"), HasSubstr("recompute")));
  EXPECT_NO_THROW(open_dataset({.root = root_})->layout({{"observation.state", {}}})) << "not asked for";
  text.replace(text.find("NaN"), 3, "0, 1");
  write_text(root_ + "/meta/stats.json", text);
  EXPECT_THAT(open_error(root_), AllOf(HasSubstr("'std' of 'action'"), HasSubstr("5 values, expected 4")));
}

TEST_F(BrokenDataset, CountsMustAgree) {
  edit_json(root_ + "/meta/info.json", [](auto& info) { info["total_frames"] = 151; });
  EXPECT_THAT(open_error(root_), AllOf(HasSubstr("total_frames 151"), HasSubstr("150 frames")));
  edit_json(root_ + "/meta/info.json", [](auto& info) { info["total_frames"] = 150; });
  edit_json(root_ + "/meta/info.json", [](auto& info) { info["total_episodes"] = 4; });
  EXPECT_THAT(open_error(root_), HasSubstr("3 episodes"));
}

TEST_F(BrokenDataset, RowsMustBeContiguous) {
  std::vector<int64_t> index(150);
  for (int64_t i = 0; i < 150; ++i) index[static_cast<size_t>(i)] = i < 70 ? i : i + 1;
  replace_column(root_ + kRows, "index", integers(index));
  EXPECT_THAT(open_error(root_), AllOf(HasSubstr(kRows), HasSubstr("'index', row 70: 71"), HasSubstr("says 70")));
}

TEST_F(BrokenDataset, EpisodesMustCoverTheRows) {
  replace_column(root_ + kEpisodes, "length", integers({50, 54, 45}));
  EXPECT_THAT(open_error(root_), AllOf(HasSubstr(kEpisodes), HasSubstr("episode 1: length 54")));
  replace_column(root_ + kEpisodes, "length", integers({50, 56, 44}));
  replace_column(root_ + kEpisodes, "dataset_to_index", integers({50, 106, 150}));
  replace_column(root_ + kEpisodes, "dataset_from_index", integers({0, 50, 106}));
  EXPECT_THAT(open_error(root_),
              AllOf(HasSubstr(kRows), HasSubstr("'episode_index', row 105: 2"), HasSubstr("says 1")));
}

TEST_F(BrokenDataset, TaskNumbersMustExist) {
  replace_column(root_ + kRows, "task_index", integers(std::vector<int64_t>(150, 7)));
  EXPECT_THAT(open_error(root_), AllOf(HasSubstr("'task_index', row 0: 7"), HasSubstr("meta/tasks")));
}

TEST_F(BrokenDataset, UnnamedTaskColumnIsRead) {
  const auto table = read_table(root_ + "/meta/tasks.parquet");
  write_table(**table->RenameColumns({"task_index", "__index_level_0__"}), root_ + "/meta/tasks.parquet");
  EXPECT_EQ(open_dataset({.root = root_})->tasks().at(0), "Reach a goal position");
}

TEST_F(BrokenDataset, RowGroupsNeedNotBeEpisodes) {
  const auto table = read_table(root_ + kRows);
  const SampleRequest request = {{"observation.image", {}}, {"observation.state", {-1, 0}}, {"action", {0, 1}}};
  for (const int64_t rows : {37, 1000}) {
    const auto file = arrow::io::FileOutputStream::Open(root_ + kRows).ValueOrDie();
    ASSERT_TRUE(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), file, rows).ok());
    ASSERT_TRUE(file->Close().ok());
    const auto original = open_dataset({.root = kData + "/lerobot_png"});
    const auto filtered = open_dataset({.root = root_, .episodes = {0, 2}});
    ASSERT_EQ(filtered->size(), 95);
    const SampleLayout layout = original->layout(request);
    const auto expected = original->open_reader(request), reader = filtered->open_reader(request);
    for (int64_t i = 0; i < 95; ++i) {
      ASSERT_TRUE(Sample(layout, *reader, i) == Sample(layout, *expected, i < 50 ? i : i + 55)) << i;
    }
  }
}

TEST_F(BrokenDataset, TwoDimensionalFeaturesAreRead) {
  // The state as 2 x 2 of int64, stored as lists of lists.
  const auto values = std::make_shared<arrow::Int64Builder>();
  const auto inner = std::make_shared<arrow::ListBuilder>(arrow::default_memory_pool(), values);
  arrow::ListBuilder outer(arrow::default_memory_pool(), inner);
  for (int64_t row = 0; row < 150; ++row) {
    ASSERT_TRUE(outer.Append().ok());
    for (int64_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(inner->Append().ok());
      ASSERT_TRUE(values->AppendValues({row * 10 + i * 2, row * 10 + i * 2 + 1}).ok());
    }
  }
  replace_column(root_ + kRows, "observation.state", outer.Finish().ValueOrDie());
  edit_json(root_ + "/meta/info.json", [](auto& info) { info["features"]["observation.state"]["shape"] = {2, 2}; });
  const auto dataset = open_dataset({.root = root_});
  const SampleRequest request = {{"observation.state", {0, 1}}};
  const SampleLayout layout = dataset->layout(request);
  const Sample sample(layout, *dataset->open_reader(request), 51);
  EXPECT_EQ(sample.shape("observation.state"), (std::vector<int64_t>{2, 2, 2}));
  EXPECT_EQ(sample.get<float>("observation.state"), (std::vector<float>{510, 511, 512, 513, 520, 521, 522, 523}));
}

TEST(Hard, ScrambledEpisodeBoundsAreRefused) {
  EXPECT_THAT(open_error(kData + "/hard/scrambled_episode_bounds/data"),
              AllOf(HasSubstr("meta/episodes"), HasSubstr("episode 1"), HasSubstr("dataset_from_index is 17"),
                    HasSubstr("first row is 9"), HasSubstr("recompute the bounds")));
}

TEST(Hard, VideoShorterThanItsRowsIsRefusedAtTheStart) {
  const std::string root = kData + "/hard/video_shorter_than_rows/data";
  EXPECT_THAT(open_error(root),
              AllOf(HasSubstr("videos/observation.images.top/chunk-000/file-000.mp4"), HasSubstr("18 frames"),
                    HasSubstr("22 needed"), HasSubstr("episode 1 frame 6"), HasSubstr("leave episode 1 out")));
  EXPECT_NO_THROW(open_dataset({.root = root, .episodes = {0}})) << "the remedy works";
}

TEST(BrokenVideo, TimestampsAndToleranceAreChecked) {
  const TempDir dir;
  const std::string root = dir.copy("hard/leftover_frames_between_episodes/data");
  arrow::DoubleBuilder builder;
  ASSERT_TRUE(builder.AppendValues({0, 0.76, 1.3}).ok());
  replace_column(root + kEpisodes, "videos/observation.images.top/from_timestamp", builder.Finish().ValueOrDie());
  EXPECT_THAT(open_error(root), AllOf(HasSubstr("file-000.mp4"), HasSubstr("episode 1 frame 0 is at 0.76"),
                                      HasSubstr("tolerance of 0.0001")));
  EXPECT_NO_THROW(open_dataset({.root = root, .tolerance_s = 0.011}));
  edit_json(root + "/meta/info.json", [](auto& info) { info["fps"] = 19; });
  EXPECT_THAT(open_error(root), AllOf(HasSubstr(kRows), HasSubstr("episode 0 frame 1"), HasSubstr("timestamp")));
}

TEST(BrokenVideo, MissingTruncatedAndMisSizedFilesAreNamed) {
  const TempDir dir;
  const std::string root = dir.copy("hard/leftover_frames_between_episodes/data");
  const std::string video = root + "/videos/observation.images.top/chunk-000/file-000.mp4",
                    whole = cxxrun::read_file(video);
  write_text(video, whole.substr(0, whole.size() / 2));
  EXPECT_THAT(open_error(root), HasSubstr(video));
  std::filesystem::remove(video);
  EXPECT_THAT(open_error(root), HasSubstr(video));
  write_text(video, whole);
  edit_json(root + "/meta/info.json", [](auto& info) {
    info["features"]["observation.images.top"]["shape"] = {64, 32, 3};
  });
  EXPECT_THAT(open_error(root), AllOf(HasSubstr(video), HasSubstr("64x64"), HasSubstr("64x32")));
}

TEST(BrokenPicture, TruncatedPngNamesItsRow) {
  const TempDir dir;
  const std::string root = dir.copy("lerobot_png");
  const auto table = read_table(root + kRows);
  const auto pictures =
      std::static_pointer_cast<arrow::StructArray>(table->GetColumnByName("observation.image")->chunk(0));
  const auto bytes = std::static_pointer_cast<arrow::BinaryArray>(pictures->GetFieldByName("bytes"));
  for (const double part : {0.0, 0.01, 0.5, 0.99}) {
    arrow::BinaryBuilder builder;
    for (int64_t row = 0; row < 150; ++row) {
      const std::string_view picture = bytes->GetView(row % bytes->length());
      ASSERT_TRUE(
          builder.Append(row == 3 ? picture.substr(0, static_cast<size_t>(part * picture.size())) : picture).ok());
    }
    replace_column(root + kRows, "observation.image", builder.Finish().ValueOrDie());
    const auto dataset = open_dataset({.root = root});
    const SampleRequest request = {{"observation.image", {}}};
    const SampleLayout layout = dataset->layout(request);
    const auto reader = dataset->open_reader(request);
    EXPECT_THAT(message_of<cxxrun::DataError>([&] { Sample(layout, *reader, 3); }),
                AllOf(HasSubstr(kRows), HasSubstr("episode 0 frame 3"), HasSubstr("'observation.image'")))
        << part;
    EXPECT_NO_THROW(Sample(layout, *reader, 4));
  }
}

}  // namespace
}  // namespace vla::data
