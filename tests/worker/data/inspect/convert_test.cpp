#include "tests/worker/data/inspect/support.hpp"

namespace vla::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kRecordings = kData + "/goldens/dp_raw";

TEST(DataConvert, SaysWhatItWrote) {
  const TempDir dir;
  const auto result = run_data({"convert", kRecordings, dir.path() + "/out.zarr", "--episodes", "1"});
  EXPECT_THAT(result.output, AllOf(HasSubstr("out.zarr: 1 episodes, 11 frames; state and action of 14 numbers, "
                                             "head_camera of 3x32x48; "),
                                   HasSubstr("episodes/s")));
}

TEST(DataConvert, NeedsTwoFolders) {
  EXPECT_THAT(message_of<cxxrun::UsageError>([] { run_data({"convert", kRecordings}); }), HasSubstr("got 1 arguments"));
  EXPECT_THAT(run_data({"convert", "--help"}).output, AllOf(HasSubstr("--overwrite"), HasSubstr("demo_clean")));
}

}  // namespace
}  // namespace vla::data
