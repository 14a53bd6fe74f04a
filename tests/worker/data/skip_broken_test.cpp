// dataset.skip_broken: episodes that cannot be read are left out, whatever the format.
#include <cmath>

#include "common/error.hpp"
#include "tests/worker/data/support.hpp"

namespace vla::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> numbers_of(const Dataset& dataset) {
  std::vector<int64_t> numbers;
  for (const Episode& episode : dataset.episodes()) numbers.push_back(episode.index);
  return numbers;
}

// The message of opening `spec` and what is written to stderr.
struct Opened {
  explicit Opened(const DatasetSpec& spec) {
    testing::internal::CaptureStderr();
    error = message_of<cxxrun::DataError>([&] { dataset = open_dataset(spec); });
    warnings = testing::internal::GetCapturedStderr();
  }
  std::shared_ptr<const Dataset> dataset;
  std::string error, warnings;
};

class SkipBrokenV2 : public testing::Test {
 protected:
  static std::string rows(int episode) { return fmt::format("/data/chunk-000/episode_{:06d}.parquet", episode); }
  static std::string video(int episode) {
    return fmt::format("/videos/chunk-000/observation.image/episode_{:06d}.mp4", episode);
  }
  void truncate(const std::string& file) const {
    const std::string whole = cxxrun::read_file(root_ + file);
    write_text(root_ + file, whole.substr(0, whole.size() / 2));
  }

  TempDir dir_;
  const std::string root_ = dir_.copy("lerobot_v21");
};

TEST_F(SkipBrokenV2, WholeDatasetsLoseNothing) {
  const Opened opened({.root = root_, .skip_broken = true});
  EXPECT_EQ(opened.error, "");
  EXPECT_EQ(opened.warnings, "");
  EXPECT_EQ(opened.dataset->size(), 388);
  EXPECT_EQ(opened.dataset->broken_episodes(), 0);
}

TEST_F(SkipBrokenV2, MissingTruncatedAndMixedUpFilesCostTheirEpisodes) {
  std::filesystem::remove(root_ + rows(0));
  truncate(video(2));
  std::filesystem::copy(root_ + rows(3), root_ + rows(4), std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(Opened({.root = root_}).error, HasSubstr(rows(0))) << "without the option it is an error";
  const Opened opened({.root = root_, .skip_broken = true});
  ASSERT_EQ(opened.error, "");
  EXPECT_THAT(numbers_of(*opened.dataset), ElementsAre(1, 3, 5));
  EXPECT_EQ(opened.dataset->broken_episodes(), 3);
  EXPECT_THAT(opened.warnings,
              AllOf(HasSubstr("episode 0 is left out: "), HasSubstr(rows(0)), HasSubstr("episode 2 is left out: "),
                    HasSubstr(video(2)), HasSubstr("episode 4 is left out: "), HasSubstr(rows(4))));
  EXPECT_EQ(std::count(opened.warnings.begin(), opened.warnings.end(), '\n'), 3);

  const auto original = open_dataset({.root = kData + "/lerobot_v21"});
  const SampleRequest request = {{"action", {0, 1, 2}}, {"observation.image", {}}};
  const SampleLayout layout = original->layout(request);
  const int64_t length = opened.dataset->episodes()[0].end;
  EXPECT_TRUE(Sample(layout, *opened.dataset->open_reader(request), length + 5) ==
              Sample(layout, *original->open_reader(request), original->episodes()[3].begin + 5));
}

TEST_F(SkipBrokenV2, AsksOnlyForTheSelectedEpisodes) {
  std::filesystem::remove(root_ + video(1));
  const Opened opened({.root = root_, .episodes = {0, 1}, .skip_broken = true});
  EXPECT_THAT(numbers_of(*opened.dataset), ElementsAre(0));
  EXPECT_EQ(Opened({.root = root_, .episodes = {0, 2}, .skip_broken = true}).warnings, "");
}

TEST_F(SkipBrokenV2, NothingLeftIsAnError) {
  std::filesystem::remove_all(root_ + "/videos");
  EXPECT_THAT(Opened({.root = root_, .skip_broken = true}).error,
              AllOf(HasSubstr("all 6 selected episodes are broken"), HasSubstr(video(0))));
}

TEST(SkipBrokenV3, EpisodesOfOneFileAreJudgedOneByOne) {
  const Opened opened({.root = kData + "/hard/video_shorter_than_rows/data", .skip_broken = true});
  ASSERT_EQ(opened.error, "");
  EXPECT_THAT(numbers_of(*opened.dataset), ElementsAre(0));
  EXPECT_THAT(opened.warnings, AllOf(HasSubstr("episode 1 is left out"), HasSubstr("18 frames")));
}

}  // namespace
}  // namespace vla::data
