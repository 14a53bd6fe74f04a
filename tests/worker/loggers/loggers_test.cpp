#include <cmath>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/log.hpp"
#include "tests/support/temp_dir.hpp"
#include "worker/loggers/console.hpp"
#include "worker/loggers/jsonl.hpp"
#include "worker/loggers/metric_values.hpp"

namespace vla {
namespace {

using cxxrun::read_file;
using cxxrun::TempDir;
using testing::HasSubstr;
using testing::Not;

StepMetrics metrics_at(int64_t step) {
  return {.step = step,
          .total_steps = 400,
          .epoch = 1.25,
          .loss = 0.83121,
          .lr = 1e-4,
          .grad_norm = 4.2149,
          .samples_per_s = 210,
          .seconds_per_step = 0.2,
          .data_wait = 0.03,
          .more = {{"l1_loss", 0.5}}};
}

std::vector<int64_t> steps_in(const std::filesystem::path& path) {
  std::vector<int64_t> steps;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) steps.push_back(nlohmann::json::parse(line)["step"]);
  return steps;
}

TEST(JsonlLogger, WritesOneObjectPerStepWithTheDocumentedKeysInOrder) {
  const TempDir dir;
  JsonlLogger(LoggerContext{dir.path()}).log(metrics_at(20));
  EXPECT_EQ(read_file(dir.path() / "metrics.jsonl"),
            "{\"step\":20,\"epoch\":1.25,\"loss\":0.83121,\"lr\":0.0001,\"grad_norm\":4.2149,\"samples_per_s\":210.0,"
            "\"data_wait\":0.03,\"step_s\":0.2,\"l1_loss\":0.5}\n");
}

TEST(JsonlLogger, WritesWhatIsKnownOfAStepsParts) {
  const TempDir dir;
  StepMetrics metrics = metrics_at(20);
  metrics.data_s = 0.01;
  metrics.forward_backward_s = 0.15;
  metrics.all_reduce_s = 0.02;
  metrics.optimizer_s = 0.005;
  metrics.slowest_rank = 3;
  metrics.mfu = 0.41;
  metrics.skipped_rows = 2;
  metrics.gpus = {{.utilisation = 90, .memory_gb = 10, .power_w = 300}, {.utilisation = 70, .memory_gb = 12, .power_w = 250}};
  metrics.sample_ids = {7, 5};
  LoggerContext context{dir.path()};
  context.options.jsonl_name = "logs.json.txt";
  JsonlLogger(context).log(metrics);
  EXPECT_THAT(read_file(dir.path() / "logs.json.txt"),
              HasSubstr(R"("step_s":0.2,"data_s":0.01,"forward_backward_s":0.15,"all_reduce_s":0.02,"optimizer_s":0.005,)"
                        R"("slowest_rank":3,"mfu":0.41,"skipped_rows":2,"gpu_util":80.0,"gpu_mem_gb":12.0,"gpu_power_w":550.0,)"
                        R"("gpu_util_rank0":90.0,"gpu_util_rank1":70.0,"l1_loss":0.5,"sample_ids":[7,5]})"));
}

TEST(LoggingOptions, FilesAreInTheOutputFolder) {
  LoggingOptions options;
  EXPECT_EQ(options.log_path("/out"), "/out/train.log");
  for (const char* name : {"", "..", "../metrics.jsonl", "/tmp/metrics.jsonl", "a/b", "a/"}) {
    options.log_file = options.jsonl_name = name;
    EXPECT_THROW(options.log_path("/out"), cxxrun::UsageError) << name;
    EXPECT_THROW(options.jsonl_path("/out"), cxxrun::UsageError) << name;
  }
}

TEST(JsonlLogger, WritesNullForValuesThatAreNotFinite) {
  const TempDir dir;
  StepMetrics metrics = metrics_at(1);
  metrics.loss = std::nan("");
  JsonlLogger(LoggerContext{dir.path()}).log(metrics);
  EXPECT_TRUE(nlohmann::json::parse(read_file(dir.path() / "metrics.jsonl"))["loss"].is_null());
}

TEST(JsonlLogger, ResumingDropsLinesPastTheCheckpointAndATornOne) {
  const TempDir dir;
  const auto path = dir.path() / "metrics.jsonl";
  {
    JsonlLogger logger(LoggerContext{dir.path()});
    for (const int64_t step : {10, 20, 30, 40}) logger.log(metrics_at(step));
  }
  cxxrun::write_file_atomically(path, read_file(path) + "not json\n" + R"({"step":50,"lo)");
  JsonlLogger resumed(LoggerContext{dir.path(), 25});
  EXPECT_THAT(steps_in(path), testing::ElementsAre(10, 20));
  resumed.log(metrics_at(30));
  EXPECT_THAT(steps_in(path), testing::ElementsAre(10, 20, 30));
}

TEST(JsonlLogger, ANewRunStartsAnEmptyFile) {
  const TempDir dir;
  JsonlLogger(LoggerContext{dir.path()}).log(metrics_at(10));
  JsonlLogger again(LoggerContext{dir.path()});
  EXPECT_EQ(read_file(dir.path() / "metrics.jsonl"), "");
}

TEST(JsonlLogger, AMissingFolderIsAnErrorThatNamesTheFile) {
  try {
    JsonlLogger logger(LoggerContext{"/nowhere/at/all"});
    FAIL();
  } catch (const cxxrun::Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("/nowhere/at/all/metrics.jsonl"));
  }
}

TEST(ConsoleLogger, LineIsReadable) {
  EXPECT_EQ(console_line(metrics_at(40)),
            "step 40/400 | epoch 1.25 | loss 0.8312 | lr 1.0e-04 | grad 4.21 | 210 samples/s | data wait 3% | l1_loss "
            "0.5 | ETA 1m 12s");
  StepMetrics slow = metrics_at(0);
  slow.seconds_per_step = 100;
  EXPECT_THAT(console_line(slow), HasSubstr("ETA 11h 06m"));
  slow.seconds_per_step = std::nan("");
  EXPECT_THAT(console_line(slow), HasSubstr("ETA ?"));
}

TEST(MetricTag, GroupsByKind) {
  EXPECT_EQ(metric_tag("loss"), "train/loss");
  EXPECT_EQ(metric_tag("val_action_error"), "val/action_error");
  EXPECT_EQ(metric_tag("gpu_util"), "gpu/util");
}

TEST(LoggingOptions, WandbIsASinkThatItsOwnSwitchAddsAndItsModeTakesAway) {
  LoggingOptions options;
  EXPECT_THAT(options.sinks_in_use(), testing::ElementsAre("console", "jsonl"));
  options.wandb.enable = true;
  EXPECT_THAT(options.sinks_in_use(), testing::ElementsAre("console", "jsonl", "wandb"));
  options.sinks = {"wandb", "jsonl", "jsonl"};
  EXPECT_THAT(options.sinks_in_use(), testing::ElementsAre("wandb", "jsonl"));
  options.wandb.mode = "disabled";
  EXPECT_THAT(options.sinks_in_use(), testing::ElementsAre("jsonl"));
}

TEST(ConsoleLogger, LineTellsOfGpusWhereTheyAreKnown) {
  StepMetrics metrics = metrics_at(40);
  metrics.gpus = {{.utilisation = 90, .memory_gb = 10, .power_w = 300}, {.utilisation = 70, .memory_gb = 12, .power_w = 250}};
  metrics.mfu = 0.4111;
  EXPECT_THAT(console_line(metrics), HasSubstr(" | data wait 3% | GPU 80% 12.0 GiB | MFU 41.1% | l1_loss 0.5 | "));
  metrics.gpus[0].utilisation = metrics.gpus[0].memory_gb = std::nan("");
  EXPECT_THAT(console_line(metrics), HasSubstr(" | GPU nan% 12.0 GiB | "));
}

TEST(ConsoleLogger, HintsOnceWhenDataHasBeenWaitedForForAHundredSteps) {
  testing::internal::CaptureStdout();
  ConsoleLogger logger(LoggerContext{.output_dir = {}, .first_step = 1000});
  for (int64_t step = 1050; step <= 2000; step += 50) {
    StepMetrics metrics = metrics_at(step);
    metrics.data_wait = step == 1050 || step > 1150 ? 0.35 : 0.1;
    logger.log(metrics);
  }
  const std::string output = testing::internal::GetCapturedStdout();
  const size_t hint = output.find("hint: 35% of the time goes into waiting for data");
  ASSERT_NE(hint, output.npos);
  EXPECT_EQ(output.rfind("hint:"), hint);
  EXPECT_GT(hint, output.find("step 1250/"));
  EXPECT_LT(hint, output.find("step 1300/"));
}

TEST(Loggers, UnknownNamesSuggestTheNearest) {
  EXPECT_THROW(make_loggers({"jsnl"}, {}), cxxrun::UsageError);
  const TempDir dir;
  EXPECT_EQ(make_loggers({"console", "jsonl"}, {dir.path()}).size(), 2);
}

TEST(Log, InformationIsRankZerosAndWarningsNameTheRank) {
  const TempDir dir;
  cxxrun::open_log_file(dir.path() / "train.log");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  ConsoleLogger({}).log(metrics_at(40));
  cxxrun::set_log_rank(3);
  cxxrun::log_info("not shown");
  cxxrun::log_warning("disk {} % full", 95);
  cxxrun::log_error("no way");
  cxxrun::set_log_rank(0);
  cxxrun::close_log_file();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), console_line(metrics_at(40)) + "\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "[rank 3] warning: disk 95 % full\n[rank 3] error: no way\n");
  const std::string log = read_file(dir.path() / "train.log");
  EXPECT_THAT(log, testing::ContainsRegex("^20..-..-.. ..:..:.. step 40/400"));
  EXPECT_THAT(log, HasSubstr("[rank 3] warning: disk 95 % full\n"));
  EXPECT_THAT(log, Not(HasSubstr("not shown")));
}

TEST(Log, AStatusLineStaysBelowTheMessagesAndOutOfTheFile) {
  const TempDir dir;
  cxxrun::open_log_file(dir.path() / "train.log");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  cxxrun::set_status_line("10%|█ |");
  cxxrun::log_info("step 10");
  cxxrun::set_status_line("9%|");
  cxxrun::log_warning("slow");
  cxxrun::set_status_line("");
  cxxrun::set_status_line("");
  cxxrun::close_log_file();
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "\r10%|█ |"
            "\r       \rstep 10\n10%|█ |"
            "\r9%|    "
            "\r   \r9%|"
            "\r   \r");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "[rank 0] warning: slow\n");
  EXPECT_THAT(read_file(dir.path() / "train.log"), testing::MatchesRegex("[-0-9]* [:0-9]* step 10\n[-0-9]* [:0-9]* .rank 0. warning: slow\n"));
}

}  // namespace
}  // namespace vla
