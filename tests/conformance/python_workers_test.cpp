// Python programs that meet through torch.distributed run under cxxrun as they are, restarts included.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "tests/support/launched.hpp"

namespace cxxrun {
namespace {

using testing::count;
using testing::cxxrun_path;
using ::testing::HasSubstr;
using testing::Launched;

class PythonWorkers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(CONFORMANCE_PYTHON))
      GTEST_SKIP() << "no Python with torch at " CONFORMANCE_PYTHON "; set CXXRUN_PYTHON";
  }
  static std::vector<std::string> job(const std::vector<std::string>& options,
                                      const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {cxxrun_path()};
    command.insert(command.end(), options.begin(), options.end());
    command.push_back(PROJECT_DIR "/tests/conformance/reduce_and_fail.py");
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
  }
  const Launched::Options python = {.environment = {"PYTHON_EXEC=" CONFORMANCE_PYTHON},
                                    .patience = std::chrono::minutes(4)};
};

TEST_F(PythonWorkers, MeetThroughTheEnvironment) {
  Launched launched(job({"--nproc_per_node=4"}, {"env"}), python);
  EXPECT_EQ(launched.wait(), 0) << launched.err();
  EXPECT_EQ(count(launched.out(), "attempt 0: sum 4.0"), 4U) << launched.out();
}

TEST_F(PythonWorkers, MeetThroughATcpAddress) {
  Launched launched(job({"--nproc_per_node=4"}, {"tcp"}), python);
  EXPECT_EQ(launched.wait(), 0) << launched.err();
  EXPECT_EQ(count(launched.out(), "attempt 0: sum 4.0"), 4U) << launched.out();
}

TEST_F(PythonWorkers, MeetAgainAfterEachOfFiveRestarts) {
  Launched launched(job({"--nproc_per_node=2", "--max-restarts=5"}, {"env"}), python);
  EXPECT_EQ(launched.wait(), 0) << launched.err();
  for (int attempt = 0; attempt < 5; ++attempt) {  // rank 0 may be ended before it says so
    EXPECT_GE(count(launched.out(), fmt::format("attempt {}: sum 2.0", attempt)), 1U) << attempt;
  }
  EXPECT_EQ(count(launched.out(), "attempt 5: sum 2.0"), 2U);
}

TEST_F(PythonWorkers, KnowThatTheyWereLaunched) {
  Launched launched({cxxrun_path(), "--run-path", PROJECT_DIR "/tests/conformance/is_elastic.py"}, python);
  EXPECT_EQ(launched.wait(), 0) << launched.err();
  EXPECT_EQ(launched.out(), "elastic: True\n");
}

TEST_F(PythonWorkers, TheErrorInTheReportIsTheTracebacksLastLine) {
  Launched launched(job({"--nproc_per_node=2"}, {"raise"}), python);
  EXPECT_EQ(launched.wait(), 1);
  EXPECT_THAT(launched.err(), HasSubstr("  error: ValueError: boom of rank 1\n"));
}

}  // namespace
}  // namespace cxxrun
