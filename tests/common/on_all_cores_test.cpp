#include "common/on_all_cores.hpp"

#include <stdexcept>

#include <gmock/gmock.h>

namespace cxxrun {
namespace {

TEST(OnAllCores, CallsEveryNumberOnce) {
  for (const size_t most_threads : {size_t{0}, size_t{1}, size_t{3}, SIZE_MAX}) {
    std::vector<int> calls(1000);
    on_all_cores(calls.size(), [&](size_t i) { ++calls[i]; }, most_threads);
    EXPECT_THAT(calls, testing::Each(1));
  }
  on_all_cores(0, [](size_t) { FAIL(); });
}

TEST(OnAllCores, ThrowsTheExceptionOfAThread) {
  std::atomic<int> calls = 0;
  const auto fail = [&](size_t i) {
    ++calls;
    if (i == 5) throw std::runtime_error("call 5");
  };
  EXPECT_THROW(on_all_cores(1'000'000, fail), std::runtime_error);
  EXPECT_LT(calls, 1'000'000);
}

}  // namespace
}  // namespace cxxrun
