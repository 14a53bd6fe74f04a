#include <gmock/gmock.h>
#include <unistd.h>

#include "worker/start_timing.hpp"

namespace vla {
namespace {

using namespace std::chrono_literals;
using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(StartTiming, GivesTheTimeSinceTheLastMarkToANameAndAddsUp) {
  const StartTiming::Clock::time_point start{};
  StartTiming timing(start);
  timing.mark("options", start + 1s);
  timing.mark("dataset", start + 3s);
  timing.mark("options", start + 3500ms);
  timing.close();
  timing.mark("first step", start + 9s);
  ASSERT_EQ(timing.phases().size(), 2U);
  EXPECT_EQ(timing.phases()[0].name, "options");
  EXPECT_DOUBLE_EQ(timing.phases()[0].seconds, 1.5);
  EXPECT_DOUBLE_EQ(timing.phases()[1].seconds, 2);
  EXPECT_DOUBLE_EQ(timing.total(), 3.5);
  EXPECT_THAT(timing_lines(timing), ElementsAre(HasSubstr("3.50 s"), HasSubstr("options"), HasSubstr("dataset")));
}

TEST(StartTiming, CountsFromTheStartOfTheProcess) {
  // The test's own start, as the kernel and the clock of files see it: what the process did before main() counts.
  start_timing().mark("all");
  EXPECT_GE(start_timing().total(), 0);
  EXPECT_LT(start_timing().total(), 60);
  const double before = start_timing().total();
  start_timing().mark("all", StartTiming::Clock::now() + 5s);
  EXPECT_NEAR(start_timing().total() - before, 5, 1);
}

}  // namespace
}  // namespace vla
