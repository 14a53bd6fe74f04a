#include "worker/loggers/progress_bar.hpp"

#include <pty.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "worker/loggers/console.hpp"

namespace vla {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(ProgressText, IsThatOfTqdm) {
  const auto rows = nlohmann::json::parse(cxxrun::read_file(TEST_DATA_DIR "/loggers/progress_bars.json"));
  ASSERT_GT(rows.size(), 5);
  for (const auto& row : rows) {
    ProgressText text{.step = row["step"], .total = row["total"], .elapsed_s = row["elapsed_s"], .postfix = row["postfix"]};
    if (!row["steps_per_s"].is_null()) text.steps_per_s = row["steps_per_s"].get<double>();
    EXPECT_EQ(progress_text(text, row["columns"], true), row["unicode"]);
    EXPECT_EQ(progress_text(text, row["columns"], false), row["ascii"]);
  }
}

TEST(ProgressText, FitsAnyWidth) {
  const ProgressText text{.step = 2, .total = 3, .elapsed_s = NAN, .steps_per_s = INFINITY};
  for (size_t columns = 0; columns < 60; ++columns) EXPECT_EQ(progress_text(text, columns, false).size(), columns);
}

TEST(ProgressBar, IsDrawnTenTimesASecondAndAtBothEnds) {
  const ProgressBar::TimePoint start{};
  ProgressBar bar(start);
  std::vector<int64_t> drawn;
  for (int64_t step = 0; step <= 1000; ++step) {
    if (bar.update(step, 1000, start + milliseconds(step))) drawn.push_back(step);
  }
  EXPECT_THAT(drawn, testing::ElementsAre(0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000));
}

TEST(ProgressBar, RateFollowsARecentChangeWithoutJumping) {
  const ProgressBar::TimePoint start{};
  ProgressBar bar(start);
  EXPECT_FALSE(bar.update(0, 100000, start)->steps_per_s);
  double rate = 0;
  int64_t step = 0;
  milliseconds now{};
  const auto run = [&](int seconds, int64_t steps_per_s) {
    for (int i = 0; i < seconds; ++i) rate = *bar.update(step += steps_per_s, 100000, start + (now += milliseconds(1000)))->steps_per_s;
  };
  run(60, 10);
  EXPECT_NEAR(rate, 10, 1e-9);
  now += milliseconds(5000);  // a checkpoint
  run(1, 10);
  EXPECT_GT(rate, 7.5);
  run(100, 20);
  EXPECT_NEAR(rate, 20, 0.2);
}

TEST(ProgressBar, StartsItsRateAtTheStepThatTrainingContinuesFrom) {
  const ProgressBar::TimePoint start{};
  ProgressBar bar(start);
  bar.update(5000, 10000, start);
  EXPECT_NEAR(*bar.update(5010, 10000, start + milliseconds(1000))->steps_per_s, 10, 1e-9);
}

TEST(ConsoleLogger, ABarThatIsAskedForShowsTheLastLossBelowTheLines) {
  LoggerContext context;
  context.options.progress = "bar";
  testing::internal::CaptureStdout();
  {
    ConsoleLogger logger(context);
    logger.progress(0, 20);
    logger.log({.step = 10, .total_steps = 20, .loss = 0.83121, .lr = 1e-4});
    logger.progress(20, 20);
  }
  const std::string output = testing::internal::GetCapturedStdout();
  EXPECT_THAT(output, testing::StartsWith("\rSteps:   0%|"));
  EXPECT_THAT(output, HasSubstr("0/20 [00:00<?, ?it/s]"));
  EXPECT_THAT(output, HasSubstr("\rstep 10/20 |"));
  EXPECT_THAT(output, HasSubstr("20/20 [00:00<00:00, "));
  EXPECT_THAT(output, HasSubstr("it/s, loss=0.831, lr=0.0001]"));
  EXPECT_THAT(output, testing::EndsWith(" \r"));
}

TEST(ConsoleLogger, DrawsNoBarWhereStdoutIsNoTerminal) {
  testing::internal::CaptureStdout();
  ConsoleLogger({}).progress(0, 20);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(ConsoleLogger, FillsATerminalButForItsLastColumn) {
  winsize size{.ws_row = 24, .ws_col = 60, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1, ours = -1;
  ASSERT_EQ(::openpty(&terminal, &ours, nullptr, nullptr, &size), 0);
  const int real_stdout = ::dup(STDOUT_FILENO);
  std::fflush(stdout);
  ::dup2(ours, STDOUT_FILENO);
  {
    ConsoleLogger logger({});
    logger.progress(0, 20);
  }
  ::dup2(real_stdout, STDOUT_FILENO);
  char text[200];
  const ssize_t length = ::read(terminal, text, sizeof text);
  for (const int fd : {terminal, ours, real_stdout}) ::close(fd);
  ASSERT_GE(length, 60);
  EXPECT_EQ(std::string(text, 60), "\r" + progress_text({.step = 0, .total = 20}, 59, locale_is_utf8()));
}

TEST(Locale, FirstVariableThatIsSetDecides) {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) ::unsetenv(name);
  EXPECT_FALSE(locale_is_utf8());
  ::setenv("LANG", "de_DE.UTF-8", 1);
  EXPECT_TRUE(locale_is_utf8());
  ::setenv("LC_ALL", "C", 1);
  EXPECT_FALSE(locale_is_utf8());
  ::setenv("LC_ALL", "C.utf8", 1);
  EXPECT_TRUE(locale_is_utf8());
}

}  // namespace
}  // namespace vla
