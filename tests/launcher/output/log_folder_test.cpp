#include "launcher/output/log_folder.hpp"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temp_dir.hpp"

namespace cxxrun {
namespace {

namespace fs = std::filesystem;

class LogFolderTest : public ::testing::Test {
 protected:
  std::string temporary() const { return folder_.path() / "tmp"; }
  std::string logs() const { return folder_.path() / "deep/logs"; }
  size_t entries(const std::string& folder) const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
  void SetUp() override { fs::create_directory(temporary()); }

 private:
  TempDir folder_;
};

TEST_F(LogFolderTest, IsTemporaryWhenNobodyAskedForLogs) {
  {
    const LogFolder folder({}, "job", temporary());
    EXPECT_FALSE(folder.is_kept());
    EXPECT_TRUE(fs::is_directory(folder.path()));
  }
  EXPECT_EQ(entries(temporary()), 0U);
}

TEST_F(LogFolderTest, OfOneLogDirIsAnotherOneForEachLaunchAndCarriesTheJobsName) {
  const LogFolder first({.log_dir = logs()}, "my/job", temporary()), second({.log_dir = logs()}, "my/job", temporary());
  EXPECT_TRUE(first.is_kept());
  EXPECT_NE(first.path(), second.path());
  EXPECT_THAT(first.path(), ::testing::StartsWith(logs() + "/my_job_"));
  EXPECT_EQ(entries(temporary()), 0U);
}

TEST_F(LogFolderTest, WithLogsInItIsKept) {
  std::string path;
  {
    const LogFolder folder({.tee = {.fallback = 3, .of_rank = {}}}, "job", temporary());
    path = folder.path();
  }
  EXPECT_TRUE(fs::is_directory(path));
}

TEST_F(LogFolderTest, CanBeSwitchedOff) {
  const LogFolder folder({.tee = {.fallback = 3, .of_rank = {}}, .log_dir = "/dev/null"}, "job", temporary());
  EXPECT_EQ(folder.path(), "");
  EXPECT_EQ(entries(temporary()), 0U);
}

TEST_F(LogFolderTest, ThatCannotBeMadeIsAnErrorOnlyIfLogsWereAskedFor) {
  const std::string file = temporary() + "/file";
  std::ofstream(file) << "x";
  EXPECT_THAT(message_of<Error>([&] { LogFolder({.log_dir = file}, "job", temporary()); }),
              ::testing::HasSubstr("is a file, not a folder"));
  EXPECT_THAT(message_of<Error>([&] { LogFolder({.log_dir = file + "/x"}, "job", temporary()); }),
              ::testing::HasSubstr("cannot make a folder for the logs"));
  EXPECT_EQ(LogFolder({}, "job", file).path(), "");
}

}  // namespace
}  // namespace cxxrun
