#include <algorithm>
#include <cmath>

#include "tests/worker/data/inspect/memory_dataset.hpp"
#include "tests/worker/data/inspect/support.hpp"
#include "worker/data/image_reader.hpp"
#include "worker/data/inspect/chart.hpp"
#include "worker/data/inspect/jpeg.hpp"
#include "worker/data/inspect/svg.hpp"
#include "worker/data/inspect/view.hpp"

namespace vla::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Every element is closed in the order of opening, every quote and every '&' has its end.
bool is_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    const size_t end = xml.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0 || tag.find('<') != std::string::npos) return false;
    if (tag.starts_with('?') || tag.ends_with('/')) continue;
    if (!tag.starts_with('/')) {
      open.push_back(tag.substr(0, tag.find(' ')));
    } else {
      if (open.empty() || "/" + open.back() != tag) return false;
      open.pop_back();
    }
  }
  for (size_t at = xml.find('&'); at != std::string::npos; at = xml.find('&', at + 1)) {
    if (xml.find(';', at) > at + 5) return false;
  }
  return open.empty();
}

TEST(Jpeg, DecodesToThePicture) {
  constexpr int64_t kHeight = 48, kWidth = 80;
  std::vector<std::byte> rgb;
  for (int64_t i = 0; i < kHeight * kWidth; ++i) {
    const int64_t x = i % kWidth;
    for (const int64_t value : {3 * x, int64_t{200}, 255 - 3 * x}) rgb.push_back(static_cast<std::byte>(value));
  }
  const std::string whole = encode_jpeg(rgb, kHeight, kWidth, 1000), half = encode_jpeg(rgb, kHeight, kWidth, 40);
  std::vector<std::byte> decoded(rgb.size()), small(rgb.size() / 4);
  ImageReader reader;
  reader.read(std::as_bytes(std::span(whole)), kHeight, kWidth, decoded.data(), "whole");
  for (size_t i = 0; i < rgb.size(); ++i)
    ASSERT_NEAR(std::to_integer<int>(decoded[i]), std::to_integer<int>(rgb[i]), 6) << i;
  reader.read(std::as_bytes(std::span(half)), kHeight / 2, kWidth / 2, small.data(), "half");
  EXPECT_NEAR(std::to_integer<int>(small[3 * 10]), 60, 8);
}

TEST(Base64, EqualsTheExamplesOfRfc4648) {
  for (const auto& [bytes, text] : {std::pair("", ""),
                                    {"f", "Zg=="},
                                    {"fo", "Zm8="},
                                    {"foo", "Zm9v"},
                                    {"foob", "Zm9vYg=="},
                                    {"fooba", "Zm9vYmE="},
                                    {"foobar", "Zm9vYmFy"}})
    EXPECT_EQ(base64(bytes), text);
}

TEST(Svg, TextIsEscaped) {
  EXPECT_EQ(escape_xml("a<b>&\"c' \xc3\xa9\n\x01"), "a&lt;b&gt;&amp;&quot;c&apos; \xc3\xa9  ");
  EXPECT_EQ(escape_xml("\xff"), "\xef\xbf\xbd");
}

TEST(Chart, ValuesOutsideTheFiniteLeaveGaps) {
  Svg svg(1000);
  draw_chart(svg, {"state", {{"a", {0, 1, NAN, 3, 4}}}, 10, {0, 4}}, 20, 0);
  EXPECT_EQ(count_of(svg.finish(200), "<polyline"), 3U) << "two parts and the legend";
}

TEST(Chart, LongEpisodesKeepTheirPeaksInFewPoints) {
  std::vector<double> values(100'000, 0.5);
  values[77'777] = 1;
  values[77'778] = 0;
  Svg svg(1000);
  draw_chart(svg, {"state", {{"a", std::move(values)}}, 100, {}}, 20, 0);
  const std::string text = svg.finish(200);
  EXPECT_LT(text.size(), 60'000U);
  // The plot reaches from 22 to 172, the curve's ends are a border of 4 % of its range away.
  EXPECT_THAT(text, AllOf(HasSubstr(",27.6 "), HasSubstr(",166.4 ")));
}

TEST(Chart, EndsWhereASmallStepIsLostInLargeNumbers) {
  Svg svg(800);
  draw_chart(svg, {"ticks", {{"encoder", {1e17, 1e17 + 16}}}, 10, {}}, 20, 0);
  EXPECT_THAT(svg.finish(300), HasSubstr("1e+17"));
}

TEST(Chart, ConstantsAreNamed) {
  Svg svg(1000);
  draw_chart(svg, {"state", {{"gripper", {2, 2, 2}}, {"wrist", {0, 1, 2}}}, 10, {}}, 20, 0);
  EXPECT_THAT(svg.finish(200), AllOf(HasSubstr("gripper: constant 2"), HasSubstr("wrist: 0 to 2")));
}

TEST(DataView, DrawsCamerasCurvesAndTask) {
  const TempDir dir;
  const std::string file = dir.path() + "/out.svg";
  const Outcome outcome = run_data({"view", kData + "/lerobot_png", "--episode", "1", "--frames=5", "--output", file});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.output, file + "\n");
  const std::string svg = cxxrun::read_file(file);
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_EQ(count_of(svg, "<image "), 10U) << "two cameras";
  EXPECT_THAT(svg, AllOf(HasSubstr("Episode 1 of LeRobot v3.0"), HasSubstr("Reach a goal position"),
                         HasSubstr("hand_x"), HasSubstr("observation.wrist_image, 64x64"),
                         HasSubstr("frame 54, 0.68 s"), HasSubstr("55 frames at 80 frames/s")));
}

TEST(DataView, DrawsWhatCanBeReadOfADamagedEpisode) {
  MemoryDataset dataset(1, 20);
  dataset.pictures[19].clear();
  dataset.numbers["action"][3] = NAN;
  dataset.task_index[7] = 5;
  const std::string svg = draw_episode(dataset, "memory", 4);
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_EQ(count_of(svg, "<image "), 3U);
  EXPECT_EQ(count_of(svg, "cannot be decoded"), 1U);
  EXPECT_THAT(svg, AllOf(HasSubstr("Pick"), HasSubstr("task 5: no text"), Not(HasSubstr("nan"))));
}

TEST(DataView, NeedsAnEpisodeThatExists) {
  EXPECT_THAT(usage_error({"view", kData + "/lerobot_png"}), HasSubstr("--episode"));
  EXPECT_THAT(usage_error({"view", kData + "/lerobot_png", "--episode=3"}), HasSubstr("no episode 3"));
}

}  // namespace
}  // namespace vla::data
