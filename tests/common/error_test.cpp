#include "common/error.hpp"

#include <gtest/gtest.h>

#include "common/scope_exit.hpp"

namespace cxxrun {
namespace {

TEST(Error, AMessageWithoutArgumentsIsNotAFormat) { EXPECT_STREQ(Error("100 % {x}").what(), "100 % {x}"); }

TEST(Error, FormatsItsArguments) { EXPECT_STREQ(UsageError("{}={}", "steps", 3).what(), "steps=3"); }

TEST(Error, ErrnoErrorAppendsTheSystemsReason) {
  EXPECT_STREQ(errno_error("cannot open x", ENOENT).what(), "cannot open x: No such file or directory");
}

TEST(ScopeExit, RunsWhenTheScopeThrows) {
  bool ran = false;
  try {
    const ScopeExit mark([&] { ran = true; });
    throw Error("x");
  } catch (const Error&) {
  }
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace cxxrun
