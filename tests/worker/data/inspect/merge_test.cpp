#include "tests/worker/data/inspect/support.hpp"

namespace vla::data {
namespace {

using testing::HasSubstr;

// An uncompressed float32 array of one chunk.
void write_array(const std::string& folder, const std::vector<int64_t>& shape, const std::vector<float>& values) {
  std::filesystem::create_directories(folder);
  const nlohmann::json described = {{"zarr_format", 2}, {"shape", shape}, {"chunks", shape},   {"dtype", "<f4"},
                                    {"compressor", {}}, {"filters", {}},  {"fill_value", 0.0}, {"order", "C"}};
  write_text(folder + "/.zarray", described.dump());
  write_text(folder + (shape.size() == 2 ? "/0.0" : "/0"),
             std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
}

// One episode of two frames with states [f, f + 1, …] and no pictures.
std::string write_buffer(const std::string& root, int64_t width, float first) {
  std::vector<float> values;
  for (int64_t i = 0; i < 2 * width; ++i) values.push_back(first + static_cast<float>(i));
  write_array(root + "/data/state", {2, width}, values);
  write_array(root + "/data/action", {2, width}, values);
  std::filesystem::create_directories(root + "/meta/episode_ends");
  const nlohmann::json ends = {{"zarr_format", 2}, {"shape", {1}},  {"chunks", {1}},   {"dtype", "<i8"},
                               {"compressor", {}}, {"filters", {}}, {"fill_value", 0}, {"order", "C"}};
  write_text(root + "/meta/episode_ends/.zarray", ends.dump());
  write_text(root + "/meta/episode_ends/0", std::string("\2\0\0\0\0\0\0\0", 8));
  for (const char* group : {"", "/data", "/meta"}) write_text(root + group + "/.zgroup", R"({"zarr_format": 2})");
  return root;
}

nlohmann::json sample(const std::string& root, const char* episode, const char* frame) {
  return nlohmann::json::parse(run_data({"sample", root, "--json", "--episode", episode, "--frame", frame}).output);
}

TEST(DataMerge, AppendsEpisodes) {
  const TempDir dir;
  const std::string a = write_buffer(dir.path() + "/a.zarr", 3, 0), b = write_buffer(dir.path() + "/b.zarr", 3, 10),
                    both = dir.path() + "/both.zarr";
  const Outcome outcome = run_data({"merge", a, b, "--output", both});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("2 episodes, 4 frames"));
  EXPECT_EQ(sample(both, "0", "1")["observation.state"], (std::vector<float>{3, 4, 5}));
  EXPECT_EQ(sample(both, "1", "0")["observation.state"], (std::vector<float>{10, 11, 12}));
  EXPECT_THAT(usage_error({"merge", a, b, "--output", both}), HasSubstr("exists"));
}

TEST(DataMerge, ActionWidthKeepsTheLastColumnsAndFillsWithZeros) {
  const TempDir dir;
  const std::string wide = write_buffer(dir.path() + "/wide.zarr", 4, 1),
                    narrow = write_buffer(dir.path() + "/narrow.zarr", 2, 10), both = dir.path() + "/both.zarr";
  EXPECT_NE(message_of<cxxrun::DataError>([&] { run_data({"merge", wide, narrow, "--output", both}); }), "");
  run_data({"merge", wide, narrow, "--output", both, "--action-width", "3"});
  EXPECT_EQ(sample(both, "0", "1")["observation.state"], (std::vector<float>{6, 7, 8}));
  EXPECT_EQ(sample(both, "1", "1")["observation.state"], (std::vector<float>{12, 13, 0}));
}

TEST(DataMerge, NeedsInputsAndOutput) {
  EXPECT_THAT(usage_error({"merge", "--output", "x"}), HasSubstr("replay buffers to append"));
  EXPECT_THAT(usage_error({"merge", "a.zarr"}), HasSubstr("--output"));
}

}  // namespace
}  // namespace vla::data
