// What programs and people are told about a job: reports in every form, heartbeats that stop, deadlines that pass.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/error.hpp"
#include "tests/support/launched.hpp"

namespace cxxrun {
namespace {

using ::testing::AllOf;
using testing::count;
using testing::cxxrun_path;
using ::testing::HasSubstr;
using testing::Launched;
using ::testing::Not;
using testing::program_path;
using testing::shell_ranks;
using nlohmann::json;

class ReportProcess : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::vector<std::string> watchdog() const {
    return {"TORCHELASTIC_ENABLE_FILE_TIMER=1", "TORCHELASTIC_TIMER_FILE=" + path("fifo")};
  }
  json read(const std::string& name) const { return json::parse(std::ifstream(path(name)), nullptr, false); }

 private:
  TempDir folder_;
};

TEST_F(ReportProcess, TheReportFileTellsHowAJobEnded) {
  Launched failing(shell_ranks(2, "[ $RANK = 0 ] && sleep 100; echo boom >&2; exit 7", {"--report-file=" + path("r")}));
  EXPECT_EQ(failing.wait(), 7);
  const json report = read("r");
  EXPECT_EQ(report.at("exit_code"), 7);
  EXPECT_EQ(report.at("culprit").at("rank"), 1);
  EXPECT_EQ(report.at("culprit").at("stderr_tail"), (json{"boom"}));
  EXPECT_EQ(report.at("ranks").at(0).at("stopped_by_cxxrun"), true);

  Launched good(shell_ranks(1, "exit 0", {"--report-file=" + path("r")}));
  EXPECT_EQ(good.wait(), 0);
  EXPECT_EQ(read("r").at("culprit"), nullptr);

  Launched stopped(shell_ranks(1, "echo ready; exec sleep 100", {"--report-file=" + path("r")}));
  ASSERT_TRUE(stopped.waits_for("ready"));
  stopped.send(SIGINT);
  EXPECT_EQ(stopped.wait(), 130);
  EXPECT_EQ(read("r").at("stop_signal"), "SIGINT");
}

TEST_F(ReportProcess, TheReportFileTellsWhyRanksWereNotStarted) {
  Launched job(shell_ranks(1, "exit 0", {"--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1", "--master-port=1",
                                         "--rdzv-conf=timeout=1", "--report-file=" + path("r")}));
  EXPECT_EQ(job.wait(), 1);
  EXPECT_EQ(read("r").at("exit_code"), 1);
  EXPECT_THAT(read("r").at("error").get<std::string>(), HasSubstr("127.0.0.1:1"));
}

TEST_F(ReportProcess, AReportFileThatCannotBeWrittenIsSaidAndChangesNothing) {
  Launched job(shell_ranks(1, "exit 3", {"--report-file=/proc/nowhere/r"}));
  EXPECT_EQ(job.wait(), 3);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("warning: "), HasSubstr("/proc/nowhere/r"), HasSubstr("exit code 3")));
}

TEST_F(ReportProcess, TorchrunsTableIsThereForWhoeverReadsIt) {
  Launched job(shell_ranks(2, "[ $RANK = 0 ] && sleep 100; exit 3", {"--report-style=torchrun"}));
  EXPECT_EQ(job.wait(), 3);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("sh FAILED\n"), HasSubstr("  rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: "),
                               HasSubstr("Root Cause (first observed failure):\n[0]:\n"),
                               HasSubstr("  rank      : 1 (local_rank: 1)\n  exitcode  : 3 (pid: "), Not(HasSubstr("cxxrun: sh failed"))));
}

TEST_F(ReportProcess, TheCulpritsErrorFileGoesToWhoeverStartedCxxrun) {
  const char* script =
      "[ $RANK = 0 ] && sleep 100; echo '{\"message\": {\"message\": \"ValueError: no\", \"extraInfo\": {}}}' > "
      "$TORCHELASTIC_ERROR_FILE; exit 5";
  Launched job(shell_ranks(2, script), {.environment = {"TORCHELASTIC_ERROR_FILE=" + path("parent.json")}});
  EXPECT_EQ(job.wait(), 5);
  EXPECT_EQ(read("parent.json").at("message").at("message"), "ValueError: no");
  EXPECT_EQ(read("parent.json").at("message").at("errorCode"), 5);

  const char* crash = "echo '{\"message\": {\"message\": \"E: x\"}}' > $TORCHELASTIC_ERROR_FILE; kill -ABRT $$";
  Launched crashing(shell_ranks(1, crash, {"--event-log-handler=console"}),
                    {.environment = {"TORCHELASTIC_ERROR_FILE=" + path("parent.json")}});
  EXPECT_EQ(crashing.wait(), 134);
  EXPECT_EQ(read("parent.json").at("message").at("errorCode"), -6) << "as torchrun counts";
  EXPECT_THAT(crashing.err(), AllOf(HasSubstr(R"("raw_error":"{\"message\":{\"message\":\"E: x\"}}")"), HasSubstr("error: E: x\n")));

  Launched silent(shell_ranks(1, "exit 5"), {.environment = {"TORCHELASTIC_ERROR_FILE=" + path("none.json")}});
  EXPECT_EQ(silent.wait(), 5);
  EXPECT_FALSE(std::filesystem::exists(path("none.json")));

  Launched own({cxxrun_path(), "no-such-program"}, {.environment = {"TORCHELASTIC_ERROR_FILE=" + path("own.json")}});
  EXPECT_EQ(own.wait(), 1);
  EXPECT_THAT(read("own.json").at("message").at("message").get<std::string>(), HasSubstr("no-such-program"));
}

TEST_F(ReportProcess, EventsAreJsonLinesOnStderr) {
  Launched job(shell_ranks(2, "exit 0", {"--event-log-handler=console", "--rdzv-id=job"}));
  EXPECT_EQ(job.wait(), 0);
  std::istringstream lines(job.err());
  size_t started = 0, total = 0;
  for (std::string line; std::getline(lines, line); ++total) {
    const json event = json::parse(line);
    EXPECT_EQ(event.at("metadata").at("run_id"), "job");
    started += event.at("name") == "torchelastic.worker.status.START";
  }
  EXPECT_EQ(started, 2U);
  EXPECT_EQ(total, 6U) << job.err();
}

TEST_F(ReportProcess, ARankWhoseHeartbeatStopsIsNamedAndTheJobEnds) {
  Launched job({cxxrun_path(), "--nproc-per-node=3", "--hang-timeout=0.5", "--shutdown-timeout=1", program_path("beater"),
                "1${local_rank}"});  // rank 0 comes to step 10, the others further
  EXPECT_EQ(job.wait(), 124);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("rank 0 (local rank 0"), HasSubstr("last step 10: hung: no heartbeat for 0.5 s")));
  EXPECT_THAT(job.out(), HasSubstr("rank 2 heard peer_failed 0"));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST_F(ReportProcess, AProgramWithoutHeartbeatsNeverHangs) {
  Launched job(shell_ranks(1, "sleep 0.6", {"--hang-timeout=0.1"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
}

TEST_F(ReportProcess, ADeadlineAnnouncedInTheWatchdogsFifoIsKept) {
  const char* script =
      "[ -p $TORCHELASTIC_TIMER_FILE ] || exit 9; [ $RANK = 0 ] && sleep 100;"
      "echo \"{\\\"version\\\": 1, \\\"pid\\\": $$, \\\"scope_id\\\": \\\"save\\\", \\\"expiration_time\\\": 1, "
      "\\\"signal\\\": 9}\" > $TORCHELASTIC_TIMER_FILE; sleep 100";
  Launched job(shell_ranks(2, script), {.environment = watchdog()});
  EXPECT_EQ(job.wait(), 137);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("is still in 'save' after its deadline: SIGKILL"), HasSubstr("rank 1 (local rank 1")));
  EXPECT_FALSE(std::filesystem::exists(path("fifo")));
}

TEST_F(ReportProcess, TheWatchdogKillsNobodyButRanks) {
  Launched bystander({"sleep", "1000"});
  const std::string script = fmt::format(
      "for pid in {} 1 -1; do echo \"{{\\\"pid\\\": $pid, \\\"scope_id\\\": \\\"x\\\", \\\"expiration_time\\\": 1, \\\"signal\\\": "
      "9}}\" > $TORCHELASTIC_TIMER_FILE; done; echo nonsense > $TORCHELASTIC_TIMER_FILE;"
      "echo \"{{\\\"pid\\\": $$, \\\"scope_id\\\": \\\"no deadline\\\", \\\"signal\\\": 9}}\" > $TORCHELASTIC_TIMER_FILE; sleep 0.3",
      bystander.pid());
  Launched job(shell_ranks(1, script), {.environment = watchdog()});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(testing::process_state(bystander.pid()), 'S');
}

TEST_F(ReportProcess, ATimerFileOfSomebodyElseIsPassedOnAndLeftAlone) {
  Launched job(shell_ranks(1, "echo $TORCHELASTIC_TIMER_FILE"), {.environment = {"TORCHELASTIC_TIMER_FILE=/dev/null"}});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "/dev/null\n");
}

TEST_F(ReportProcess, SignalsToHandleEndTheJobAndOthersAreTheRanksOwn) {
  const char* script = "trap 'echo usr' USR2; trap 'echo term' TERM; echo ready; while :; do sleep 0.05; done";
  Launched job(shell_ranks(1, script, {"--signals-to-handle=SIGUSR1", "--shutdown-timeout=1"}));
  ASSERT_TRUE(job.waits_for("ready"));
  job.send(SIGTERM);
  EXPECT_TRUE(job.waits_for("term"));
  job.send(SIGUSR2);
  EXPECT_TRUE(job.waits_for("usr"));
  job.send(SIGUSR1);
  EXPECT_EQ(job.wait(), 128 + SIGUSR1);
}

TEST_F(ReportProcess, TwentyRestartsGetAFreshStoreEach) {
  Launched job(shell_ranks(2, "echo port $MASTER_PORT; [ $TORCHELASTIC_RESTART_COUNT = 20 ] || exit 1",
                           {"--max-restarts=20"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  std::istringstream lines(job.out());
  std::map<std::string, int> ports;
  for (std::string line; std::getline(lines, line);) ++ports[line];
  EXPECT_GT(ports.size(), 10U) << "a port may come back, but not at once";
}

}  // namespace
}  // namespace cxxrun
