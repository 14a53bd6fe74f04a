#include "launcher/report/exit_status.hpp"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cxxrun {
namespace {

using ::testing::HasSubstr;

TEST(ExitStatus, ComesFromWaitAndCountsAsInAShell) {
  EXPECT_TRUE(ExitStatus::from_wait(0).success());
  EXPECT_EQ(ExitStatus::from_wait(3 << 8).shell_code(), 3);
  EXPECT_EQ(ExitStatus::from_wait(SIGKILL).shell_code(), 137);
  EXPECT_FALSE(ExitStatus::from_wait(SIGTERM).success());
}

TEST(ExitStatus, SaysWhatItMeans) {
  EXPECT_EQ(describe({.code = 7}), "exit code 7");
  EXPECT_THAT(describe({.code = 127}), HasSubstr("not found"));
  EXPECT_THAT(describe({.code = 126}), HasSubstr("cannot be executed"));
  EXPECT_THAT(describe({.code = 137}), HasSubstr("SIGKILL"));
  EXPECT_THAT(describe({.signo = SIGSEGV}), HasSubstr("signal SIGSEGV (segmentation fault)"));
  EXPECT_EQ(signal_name(SIGRTMIN + 2), "SIGRTMIN+2");
}

TEST(ExitStatus, CodesOfVlaWorkerAreReadOnlyAsItsOwn) {
  EXPECT_EQ(describe({.code = 3}), "exit code 3");
  EXPECT_EQ(describe({.code = 3}, true), "exit code 3 (out of memory)");
  EXPECT_EQ(describe({.code = 5}, true), "exit code 5 (data)");
}

}  // namespace
}  // namespace cxxrun
