#include "worker/loggers/wandb.hpp"

#include <csignal>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "tests/support/temp_dir.hpp"

namespace vla {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

class Wandb : public testing::Test {
 protected:
  Wandb() {
    ::setenv("PYTHONPATH", PROJECT_DIR "/tests/programs/fake_wandb", 1);
    ::setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
    ::setenv("FAKE_WANDB_FILE", told_.c_str(), 1);
    ::setenv("NETRC", (dir_.path() / "no_netrc").c_str(), 1);
    for (const char* name : {"FAKE_WANDB", "FAKE_WANDB_STEP", "WANDB_API_KEY", "WANDB_MODE", "WANDB_RUN_ID", "WANDB_NAME", "WANDB_PROJECT"}) ::unsetenv(name);
    context_.output_dir = dir_.path();
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
  }

  ~Wandb() override {
    const std::string hidden = (out_taken_ ? "" : out()) + (err_taken_ ? "" : err());
    if (HasFailure()) std::fputs(hidden.c_str(), stdout);
  }

  void behave(const char* how) { ::setenv("FAKE_WANDB", how, 1); }

  std::vector<json> told() const {
    std::vector<json> calls;
    if (!std::filesystem::exists(told_)) return calls;
    std::istringstream lines(cxxrun::read_file(told_));
    for (std::string line; std::getline(lines, line);) calls.push_back(json::parse(line));
    return calls;
  }
  bool waits_for_calls(WandbLogger& logger, size_t count) const {
    return eventually([&] {
      logger.progress(0, 0);
      return told().size() >= count;
    });
  }
  std::string out() {
    out_taken_ = true;
    return testing::internal::GetCapturedStdout();
  }
  std::string err() {
    err_taken_ = true;
    return testing::internal::GetCapturedStderr();
  }
  json init_of(const LoggerContext& context) {
    std::filesystem::remove(told_);
    WandbLogger(context).close();
    return told().at(0);
  }

  cxxrun::TempDir dir_;
  std::filesystem::path told_ = dir_.path() / "told";
  LoggerContext context_;

 private:
  bool out_taken_ = false, err_taken_ = false;
};

TEST_F(Wandb, GetsTheConfigurationEveryRecordAndTheEnd) {
  context_.config_json = R"({"training": {"steps": 40}})";
  context_.options.wandb.entity = "robots";
  context_.options.wandb.tags = {"a", "b"};
  {
    WandbLogger logger(context_);
    logger.log({.step = 10, .loss = 0.5, .more = {{"val_loss", 2}}});
    logger.log({.step = 20, .loss = std::nan("")});
    logger.close();
  }
  const auto calls = told();
  ASSERT_EQ(calls.size(), 4);
  EXPECT_EQ(calls[0]["config"]["training"]["steps"], 40);
  EXPECT_EQ(calls[0]["entity"], "robots");
  EXPECT_EQ(calls[0]["tags"], json({"a", "b"}));
  EXPECT_EQ(calls[0]["project"], "vla_worker");
  EXPECT_EQ(calls[0]["mode"], "offline");
  EXPECT_EQ(calls[0]["name"], dir_.path().filename().string());
  EXPECT_EQ(calls[1]["step"], 10);
  EXPECT_EQ(calls[1]["values"]["train/loss"], 0.5);
  EXPECT_EQ(calls[1]["values"]["val/loss"], 2);
  EXPECT_EQ(calls[2]["step"], 20);
  EXPECT_EQ(calls[2]["values"]["train/loss"], "nan");
  EXPECT_EQ(calls[3], json({{"call", "finish"}, {"exit_code", 0}}));
  EXPECT_EQ(out(), "wandb: Tracking run\nwandb: the run is kept offline; to send it: wandb sync folder\n");
  EXPECT_EQ(err(), "");
}

TEST_F(Wandb, ALoggerThatIsNotClosedMarksTheRunAsFailed) {
  { WandbLogger logger(context_); }
  EXPECT_EQ(told().back()["exit_code"], 1);
}

TEST_F(Wandb, IsOnlineWhereThereIsAKeyAndFallsBackWithoutAConnection) {
  ::setenv("WANDB_API_KEY", "0123", 1);
  EXPECT_EQ(init_of(context_)["mode"], "online");
  EXPECT_EQ(init_of(context_)["resume"], "allow");
  behave("offline");
  EXPECT_EQ(init_of(context_)["call"], "teardown");
  EXPECT_EQ(told().at(1)["mode"], "offline");
  EXPECT_THAT(out(), HasSubstr("wandb: no connection (no route): the run is kept offline\n"));
}

TEST_F(Wandb, AContinuedTrainingContinuesItsRun) {
  const std::string id = init_of(context_)["id"];
  EXPECT_THAT(id, testing::MatchesRegex("run_20[0-9]{6}_[0-9]{6}_[0-9a-f]{8}"));
  EXPECT_NE(init_of(context_)["id"], id);
  const json last = init_of(context_)["id"];
  context_.first_step = 20;
  EXPECT_EQ(init_of(context_)["id"], last);
  ::setenv("WANDB_RUN_ID", "from_variable", 1);
  EXPECT_EQ(init_of(context_)["id"], "from_variable");
  context_.options.wandb.id = "given";
  const auto left = dir_.path() / "wandb_id.txt.tmp-AbCdEf";  // by a run that was killed
  cxxrun::write_file_atomically(left, "hal");
  EXPECT_EQ(init_of(context_)["id"], "given");
  EXPECT_EQ(cxxrun::read_file(dir_.path() / "wandb_id.txt"), "given\n");
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST_F(Wandb, StepsThatTheRunHasAlreadyAreNotSentAgain) {
  ::setenv("FAKE_WANDB_STEP", "31", 1);
  {
    WandbLogger logger(context_);
    for (const int64_t step : {20, 30, 40}) logger.log({.step = step});
    logger.close();
  }
  ASSERT_EQ(told().size(), 3);
  EXPECT_EQ(told()[1]["step"], 40);
}

TEST_F(Wandb, WithoutPythonThereIsOneWarning) {
  context_.options.wandb.python = "/no/such/python";
  WandbLogger logger(context_);
  logger.log({.step = 10});
  logger.close();
  EXPECT_THAT(err(), testing::MatchesRegex("\\[rank 0\\] warning: cannot start /no/such/python: No such file[^\n]*logging.wandb.python\n"));
}

TEST_F(Wandb, WithoutThePackageThereIsOneWarning) {
  behave("missing");
  WandbLogger logger(context_);
  logger.log({.step = 10});
  logger.close();
  logger.close();
  EXPECT_THAT(out(), HasSubstr("cannot import wandb (No module named 'wandb'): pip install wandb"));
  EXPECT_THAT(err(), testing::MatchesRegex("\\[rank 0\\] warning: the W&B client has ended \\(exit code 1\\)[^\n]*\n"));
}

TEST_F(Wandb, AClientThatDiesCostsOneWarning) {
  behave("crashes");
  WandbLogger logger(context_);
  logger.log({.step = 10});
  ASSERT_TRUE(waits_for_calls(logger, 2));
  logger.log({.step = 20});
  std::string warnings;
  EXPECT_TRUE(eventually([&] {
    logger.progress(20, 40);
    warnings += err();
    testing::internal::CaptureStderr();
    return !warnings.empty();
  }));
  for (int64_t step = 30; step < 100; ++step) logger.log({.step = step});
  logger.close();
  EXPECT_EQ(warnings + err(), "[rank 0] warning: the W&B client has ended (exit code 7): nothing more goes to W&B\n");
}

TEST_F(Wandb, AClientThatHangsHoldsNothingUpAndIsKilledAtTheEnd) {
  behave("hangs");
  const auto start = std::chrono::steady_clock::now();
  WandbLogger logger(context_, milliseconds(300));
  ASSERT_TRUE(waits_for_calls(logger, 1));
  StepMetrics metrics;
  metrics.more = {{std::string(10'000, 'x'), 1}};
  for (int64_t step = 0; step < 1000; ++step) logger.log(metrics);  // 10 MB
  logger.close();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  const std::string warnings = err();
  EXPECT_THAT(warnings, HasSubstr("does not keep up"));
  EXPECT_THAT(warnings, HasSubstr("did not end within 0.3 s and was killed"));
  EXPECT_THAT(warnings, HasSubstr("records were not sent"));
}

TEST(LineChild, EchoesLinesInOrderHoweverMany) {
  LineChild child({"cat"});
  std::vector<std::string> lines;
  for (int i = 0; i < 20'000; ++i) {
    child.send(fmt::format("line {}", i));
    for (std::string& line : child.exchange()) lines.push_back(std::move(line));
  }
  EXPECT_TRUE(child.finish(std::chrono::seconds(30), lines));
  ASSERT_EQ(lines.size(), 20'000);
  for (size_t i = 0; i < lines.size(); ++i) ASSERT_EQ(lines[i], fmt::format("line {}", i));
  EXPECT_EQ(child.exit_text(), "exit code 0");
  EXPECT_EQ(child.dropped_lines(), 0);
}

TEST(LineChild, DropsTheOldestWholeLinesOfAChildThatDoesNotRead) {
  LineChild child({"sh", "-c", "trap '' TERM; read -r start; echo ready; read -r go; cat"});
  const std::string padding(1000, '.');
  for (int i = 0; i < 20'000; ++i) child.send(fmt::format("{} {}", i, padding));
  EXPECT_GT(child.dropped_lines(), 10'000);
  std::vector<std::string> lines;
  EXPECT_TRUE(child.finish(std::chrono::seconds(30), lines));
  ASSERT_EQ(lines.size() + static_cast<size_t>(child.dropped_lines()) + 1, 20'000);  // "go" and "start" became one "ready"
  EXPECT_EQ(lines.back(), "19999 " + padding);
}

TEST(LineChild, StartsWithNoSignalBlockedOrIgnoredAndNoDescriptorOfOurs) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const auto old = ::signal(SIGINT, SIG_IGN);
  const int leaked = ::dup(STDOUT_FILENO);
  LineChild child({"sh", "-c", fmt::format("grep -E 'Sig(Blk|Ign)' /proc/self/status; test -e /proc/$$/fd/{} && echo leaked; echo end", leaked)});
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::signal(SIGINT, old);
  ::close(leaked);
  std::vector<std::string> lines;
  EXPECT_TRUE(child.finish(std::chrono::seconds(30), lines));
  ASSERT_EQ(lines.size(), 3);
  EXPECT_THAT(lines[0], testing::MatchesRegex("SigBlk:.*00000000"));
  EXPECT_THAT(lines[1], testing::MatchesRegex("SigIgn:.*[08]0000000"));  // 32 is glibc's own
  EXPECT_EQ(lines[2], "end");
}

TEST(LineChild, ShowsTheLastStateOfALineThatIsDrawnAgainAndOneWithoutEnd) {
  LineChild child({"printf", "10%%\\r20%%\\n\\nlast"});
  std::vector<std::string> lines;
  EXPECT_TRUE(child.finish(std::chrono::seconds(30), lines));
  EXPECT_THAT(lines, testing::ElementsAre("20%", "last"));
}

TEST(LineChild, AProgramThatDoesNotExistIsAnErrorThatNamesIt) {
  try {
    LineChild child({"no-such-program"});
    FAIL();
  } catch (const cxxrun::Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("cannot start no-such-program"));
  }
}

}  // namespace
}  // namespace vla
