#include <cmath>
#include <limits>

#include "tests/worker/data/inspect/memory_dataset.hpp"
#include "tests/worker/data/inspect/support.hpp"
#include "worker/data/inspect/check.hpp"
#include "worker/data/inspect/dataset_check.hpp"

namespace vla::data {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr char kVideo[] = "/videos/observation.images.top/chunk-000/file-000.mp4";

std::vector<Finding> episode_findings(const MemoryDataset& dataset, size_t episode = 0) {
  const EpisodeFiles files("memory");
  return EpisodeChecker(dataset, files, {}).check(dataset.episodes()[episode]).findings;
}

std::vector<Finding> whole_findings(const MemoryDataset& dataset, bool is_whole = true) {
  const EpisodeFiles files("memory");
  EpisodeChecker checker(dataset, files, {});
  std::vector<EpisodeSummary> summaries;
  for (const Episode& episode : dataset.episodes()) summaries.push_back(checker.check(episode));
  return check_whole(dataset, summaries, is_whole);
}

// Of 2 episodes of 11 frames: values 0 to 11.
DatasetStats true_statistics() {
  DatasetStats stats;
  const double std = std::sqrt(10.0 + 0.25);
  stats["observation.state"] = {
      {"mean", {{2}, {5.5, -5.5}}}, {"std", {{2}, {std, std}}}, {"min", {{2}, {0, -11}}}, {"max", {{2}, {11, 0}}}};
  stats["action"] = {{"mean", {{1}, {11}}}, {"std", {{1}, {2 * std}}}, {"min", {{1}, {0}}}, {"max", {{1}, {22}}}};
  stats["observation.image"] = {{"mean", {{3, 1, 1}, {0.2, 0.2, 0.2}}}};
  return stats;
}

class CheckOfMemory : public testing::Test {
 protected:
  void SetUp() override { dataset_.statistics = true_statistics(); }
  MemoryDataset dataset_{2, 11};
};

TEST_F(CheckOfMemory, FindsNothingInGoodData) {
  EXPECT_TRUE(episode_findings(dataset_, 0).empty());
  EXPECT_TRUE(episode_findings(dataset_, 1).empty());
  EXPECT_TRUE(whole_findings(dataset_).empty());
}

TEST_F(CheckOfMemory, NumbersThatAreNotFiniteAreCountedAndPlaced) {
  dataset_.numbers["observation.state"][2 * 14 + 1] = std::numeric_limits<float>::quiet_NaN();
  dataset_.numbers["observation.state"][2 * 16] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(episode_findings(dataset_, 0).empty());
  const auto findings = episode_findings(dataset_, 1);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, "not_finite");
  EXPECT_EQ(findings[0].severity, Severity::kError);
  EXPECT_EQ(findings[0].place.episode, 1);
  EXPECT_EQ(findings[0].place.frame, 3);
  EXPECT_EQ(findings[0].place.feature, "observation.state");
  EXPECT_EQ(findings[0].message, "[1] is nan, the first of 2");
  EXPECT_TRUE(whole_findings(dataset_, false).empty()) << "the statistics of the others are still right";
}

TEST_F(CheckOfMemory, TimestampsMustBeOnTheGridOfTheFrameRate) {
  dataset_.numbers["timestamp"][7] += 0.02F;
  const auto findings = episode_findings(dataset_);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, "timestamp");
  EXPECT_EQ(findings[0].place.frame, 7);
  EXPECT_THAT(findings[0].message, AllOf(HasSubstr("0.72 s"), HasSubstr("10 frames/s"), HasSubstr("0.7 s")));
}

TEST_F(CheckOfMemory, TasksMustExist) {
  dataset_.task_index[4] = 1;
  const auto findings = episode_findings(dataset_);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, "task_index");
  EXPECT_EQ(findings[0].place.frame, 4);
}

TEST_F(CheckOfMemory, FramesThatCannotBeDecodedAreCountedAndTheOthersRead) {
  dataset_.pictures[3].clear();
  dataset_.pictures[5].clear();
  const auto findings = episode_findings(dataset_);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, "unreadable_frame");
  EXPECT_EQ(findings[0].place.frame, 3);
  EXPECT_THAT(findings[0].message, AllOf(HasSubstr("cam.mp4: frame 3"), HasSubstr("2 of the episode's 11 frames")));
  EXPECT_EQ(findings[0].remedy, "copy the file again");
}

TEST_F(CheckOfMemory, CamerasThatStandStillAreWarnedOf) {
  for (size_t i = 0; i < 11; ++i) dataset_.pictures[i].assign(12, static_cast<std::byte>(100 + i % 2));
  const auto findings = episode_findings(dataset_);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, "frozen_camera");
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
  dataset_.pictures[10][11] = std::byte{110};
  EXPECT_TRUE(episode_findings(dataset_).empty()) << "one pixel of the last frame moved";
}

TEST_F(CheckOfMemory, JointsThatStandStillInSomeEpisodesAreWarnedOf) {
  for (size_t i = 11; i < 22; ++i) dataset_.numbers["observation.state"][2 * i + 1] = -3;
  const auto findings = whole_findings(dataset_, false);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, "frozen_joint");
  EXPECT_EQ(findings[0].message, "[1] does not change at all in 1 of 2 episodes: 1");
}

TEST_F(CheckOfMemory, NumbersThatNeverChangeAreWarnedOf) {
  dataset_.numbers["action"].assign(22, 4);
  const auto findings = whole_findings(dataset_, false);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, "zero_variance");
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
}

TEST_F(CheckOfMemory, StatisticsThatContradictTheDataAreErrors) {
  for (const char* stat : {"mean", "std", "min", "max"}) {
    dataset_.statistics = true_statistics();
    dataset_.statistics["observation.state"][stat].values[1] += 1.2;
    const auto findings = whole_findings(dataset_);
    ASSERT_EQ(findings.size(), 1U) << stat;
    EXPECT_EQ(findings[0].kind, "statistics");
    EXPECT_EQ(findings[0].severity, Severity::kError);
    EXPECT_THAT(findings[0].message, HasSubstr(fmt::format("'{}'[1]", stat)));
  }
}

TEST_F(CheckOfMemory, SmallDifferencesOfStatisticsAreWarnings) {
  dataset_.statistics["action"]["mean"].values[0] += 0.3;
  const auto findings = whole_findings(dataset_);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
  dataset_.statistics["action"]["mean"].values[0] -= 0.299;
  EXPECT_TRUE(whole_findings(dataset_).empty());
}

TEST_F(CheckOfMemory, StatisticsOfMoreEpisodesMayBeWiderThanTheData) {
  dataset_.statistics["action"]["mean"].values[0] = 50;
  dataset_.statistics["action"]["max"].values[0] = 100;
  EXPECT_TRUE(whole_findings(dataset_, false).empty());
  dataset_.statistics["action"]["max"].values[0] = 12;
  ASSERT_EQ(whole_findings(dataset_, false).size(), 1U);
}

TEST_F(CheckOfMemory, StatisticsThatCannotBeUsedAreErrors) {
  const auto message = [&](auto edit) {
    dataset_.statistics = true_statistics();
    edit(dataset_.statistics);
    const auto findings = whole_findings(dataset_);
    return findings.size() == 1 ? findings[0].message : fmt::format("{} findings", findings.size());
  };
  EXPECT_THAT(message([](auto& stats) { stats["action"]["std"].values[0] = NAN; }), HasSubstr("'std' [0] is nan"));
  EXPECT_THAT(message([](auto& stats) { stats["action"]["std"].values.clear(); }), HasSubstr("0 values, expected 1"));
  EXPECT_THAT(message([](auto& stats) {
                stats["observation.image"]["mean"].values = {51, 51, 51};
              }),
              HasSubstr("in [0, 1]"));
  EXPECT_THAT(message([](auto& stats) { stats["observation.image"]["mean"].values[2] = 0.4; }), HasSubstr("colour 2"));
  EXPECT_THAT(message([](auto& stats) { stats.erase("action"); }), HasSubstr("no statistics"));
}

TEST(Check, EpisodesOfOneFrameAreWarnedOf) {
  const auto findings = episode_findings(MemoryDataset(1, 1));
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, "short_episode");
}

TEST(Moments, MergedAreThoseOfAllNumbers) {
  Moments all, left, right;
  for (int i = 0; i < 20; ++i) {
    const double value = 1e6 + i * i;
    all.add(value);
    (i < 7 ? left : right).add(value);
  }
  left.merge(right);
  left.merge({});
  EXPECT_EQ(left.count, 20);
  EXPECT_NEAR(left.mean, all.mean, 1e-7);
  EXPECT_NEAR(left.std(), 113.4947, 1e-4);
  EXPECT_NEAR(left.std(), all.std(), 1e-7);
  EXPECT_EQ(left.max, 1e6 + 361);
}

json check(const std::string& root, int expected_exit_code, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"check", root, "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Outcome run = run_data(arguments);
  EXPECT_EQ(run.exit_code, expected_exit_code);
  return json::parse(run.output);
}

TEST(DataCheck, GoodDatasetsHaveNoErrors) {
  for (const char* name :
       {"lerobot_h264", "lerobot_png", "hard/rotated_camera/data", "hard/trimmed_by_edit_list/data"}) {
    const json report = check(kData + "/" + name, 0);
    EXPECT_EQ(report["errors"], json::array()) << name;
  }
  const json report = check(kData + "/lerobot_h264", 0, {"--episodes=[3, 30]"});
  EXPECT_EQ(report["dataset"], kData + "/lerobot_h264");
  EXPECT_EQ(report["episodes"], 2);
  EXPECT_EQ(report["frames"], 48 + 79);
  EXPECT_EQ(report["warnings"], json::array());
}

TEST(DataCheck, GoesOnAfterABrokenEpisode) {
  const std::string root = kData + "/hard/video_shorter_than_rows/data";
  const json report = check(root, 5);
  EXPECT_EQ(report["episodes"], 1);
  EXPECT_EQ(report["frames"], 12);
  ASSERT_EQ(report["errors"].size(), 1U);
  const json& error = report["errors"][0];
  EXPECT_EQ(error["kind"], "broken_episode");
  EXPECT_EQ(error["place"]["episode"], 1);
  EXPECT_EQ(error["place"]["file"], root + kVideo);
  EXPECT_EQ(error["remedy"], "re-encode it, or leave episode 1 out (dataset.episodes)");
}

TEST(DataCheck, BrokenMetadataIsTheOneFinding) {
  const json report = check(kData + "/hard/scrambled_episode_bounds/data", 5);
  ASSERT_EQ(report["errors"].size(), 1U);
  EXPECT_EQ(report["errors"][0]["kind"], "cannot_open");
  EXPECT_THAT(report["errors"][0]["message"].get<std::string>(), HasSubstr("dataset_from_index is 17"));
}

TEST(DataCheck, DamagedPicturesAreFoundUnlessFast) {
  const TempDir dir;
  const std::string root = dir.copy("lerobot_h264");
  const std::string video = root + "/videos/observation.image/chunk-000/file-000.mp4";
  std::string bytes = cxxrun::read_file(video);
  ASSERT_GT(bytes.size(), 200'000U);
  for (size_t i = 100'000; i < 101'000; ++i) bytes[i] = static_cast<char>(0xff);
  write_text(video, bytes);
  EXPECT_EQ(check(root, 0, {"--fast"})["errors"].size(), 0U);
  const json one = check(root, 5, {"--threads=1"}), four = check(root, 5, {"--threads=4"});
  EXPECT_EQ(one, four) << "the report does not depend on the number of threads";
  EXPECT_EQ(one["episodes"], 36);
  EXPECT_EQ(one["errors"][0]["kind"], "unreadable_frame");
  EXPECT_EQ(one["errors"][0]["place"]["file"], video);
}

TEST(DataCheck, MissingVideosBreakTheirEpisodesOnly) {
  const TempDir dir;
  const std::string root = dir.copy("hard/video_files_differ_from_data/data");
  std::filesystem::remove(root + "/videos/observation.images.top/chunk-000/file-001.mp4");
  const json report = check(root, 5);
  ASSERT_EQ(report["errors"].size(), 2U);
  EXPECT_EQ(report["episodes"], 4);
  for (const json& error : report["errors"])
    EXPECT_THAT(error["place"]["file"].get<std::string>(), HasSubstr("file-001.mp4"));
}

TEST(DataCheck, WrongStatisticsAreFound) {
  const TempDir dir;
  const std::string root = dir.copy("lerobot_png");
  edit_json(root + "/meta/stats.json", [](auto& stats) { stats["action"]["max"][1] = 0.2; });
  const json report = check(root, 5);
  ASSERT_EQ(report["errors"].size(), 1U);
  EXPECT_EQ(report["errors"][0]["place"]["feature"], "action");
}

TEST(DataCheck, TextNamesPlaceAndRemedy) {
  const Outcome run = run_data({"check", kData + "/hard/video_shorter_than_rows/data"});
  EXPECT_EQ(run.exit_code, 5);
  EXPECT_THAT(run.output, AllOf(HasSubstr("error broken_episode, episode 1: "), HasSubstr("\n    re-encode it"),
                                HasSubstr("errors: 1, warnings: 0")));
}

TEST(DataCheck, MissingDatasetsAreReported) {
  const json report = check("/nowhere", 5);
  EXPECT_THAT(report["errors"][0]["message"].get<std::string>(), HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace vla::data
