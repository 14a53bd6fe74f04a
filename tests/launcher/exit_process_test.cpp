// Exit codes, restarts and the report at the end.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "common/unique_fd.hpp"
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

TEST(ExitCode, IsZeroWhenAllRanksAre) {
  Launched job(shell_ranks(2, "exit 0"));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.err(), "");
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(ExitCode, IsTheCulpritsOwn) {
  for (const char* failing : {"0", "1", "2"}) {
    Launched job(shell_ranks(3, fmt::format("if [ $RANK = {} ]; then exit 7; fi; sleep 100", failing)));
    EXPECT_EQ(job.wait(), 7);
    EXPECT_THAT(job.err(), HasSubstr(fmt::format("rank {} (local rank {}", failing, failing)));
    EXPECT_THAT(job.err(), HasSubstr("stopped by cxxrun"));
  }
}

TEST(ExitCode, Is128PlusTheSignalThatKilledTheCulprit) {
  Launched killed(shell_ranks(1, "kill -KILL $$"));
  EXPECT_EQ(killed.wait(), 137);
  EXPECT_THAT(killed.err(), HasSubstr("signal SIGKILL (killed from outside"));
  Launched crashed(shell_ranks(2, "[ $RANK = 0 ] && kill -SEGV $$; sleep 100"));
  EXPECT_EQ(crashed.wait(), 139);
  EXPECT_THAT(crashed.err(), HasSubstr("signal SIGSEGV (segmentation fault)"));
}

TEST(ExitCode, CanBeTorchruns) {
  Launched job(shell_ranks(1, "exit 7", {"--torchrun-exit-codes"}));
  EXPECT_EQ(job.wait(), 1);
}

TEST(ExitCode, OfWrongUsageIsTwoAndNothingStarts) {
  for (const char* option : {"--nnodes=1:2:3", "--nproc-per-node=0", "--master-port=66660", "--bogus", "--tee=4"}) {
    Launched job(shell_ranks(1, "echo started", {option}));
    EXPECT_EQ(job.wait(), 2) << option;
    EXPECT_EQ(job.out(), "") << option;
    EXPECT_THAT(job.err(), AllOf(::testing::StartsWith("cxxrun: "), HasSubstr(std::string(option).substr(0, 5))))
        << option;
  }
}

TEST(ExitCode, OfAProgramThatIsNotThereIsOne) {
  Launched job({cxxrun_path(), "no-such-program-at-all"});
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.err(), HasSubstr("program 'no-such-program-at-all' not found"));
}

TEST(ExitCode, OfAProgramThatCannotBeExecutedIsOne) {
  const TempDir folder;
  const std::string program = (folder.path() / "broken").string();
  std::ofstream(program) << "\x7f"
                            "ELF nonsense";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  Launched job({cxxrun_path(), "--nproc-per-node=2", program});
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.err(), HasSubstr("cannot start '" + program + "': Exec format error"));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(ExitCode, MoreRanksThanListedDevicesAreRefusedWithBothNumbers) {
  Launched job(shell_ranks(3, "echo started"), {.environment = {"CUDA_VISIBLE_DEVICES=GPU-89,GPU-ab"}});
  EXPECT_EQ(job.wait(), 2);
  EXPECT_EQ(job.out(), "");
  EXPECT_THAT(job.err(), AllOf(HasSubstr("--nproc-per-node=3"), HasSubstr("2 devices")));
}

TEST(Port, ThatIsTakenIsNamedAndNothingStarts) {
  const UniqueFd taken(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(taken.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(taken.get(), 1), 0);
  ASSERT_EQ(::getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));

  Launched hard(shell_ranks(2, "echo started", {"--master-port=" + port}));
  EXPECT_EQ(hard.wait(), 1);
  EXPECT_EQ(hard.out(), "");
  EXPECT_THAT(hard.err(), AllOf(HasSubstr("127.0.0.1"), HasSubstr(port)));

  Launched soft(shell_ranks(2, "echo port $MASTER_PORT"), {.environment = {"MASTER_PORT=" + port}});
  EXPECT_EQ(soft.wait(), 0);
  EXPECT_EQ(count(soft.out(), "port "), 2U);
  EXPECT_THAT(soft.out(), Not(HasSubstr("port " + port + "\n")));
  EXPECT_THAT(soft.err(), HasSubstr(port)) << "one line says that it moved";
}

TEST(Restart, StartsAllRanksAgainWithANewCountAndTheSameLaunchTime) {
  const TempDir folder;
  Launched job(shell_ranks(2,
                           "echo attempt $TORCHELASTIC_RESTART_COUNT launch $CXXRUN_LAUNCH_TIME; [ $RANK = 0 ] && "
                           "sleep 100; [ $TORCHELASTIC_RESTART_COUNT = 2 ] || exit 4; pkill -f \"$MARK\" || :",
                           {"--max-restarts=3"}),
               {.environment = {"MARK=nothing-has-this-name"}});
  // Rank 0 would sleep for ever in the last attempt, so that one is ended from outside.
  ASSERT_TRUE(job.waits_for("attempt 2"));
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 143);
  std::string launch = job.out().substr(job.out().find("launch"));
  launch.resize(launch.find('\n'));
  for (const char* attempt : {"attempt 0", "attempt 1", "attempt 2"})
    EXPECT_GE(count(job.out(), std::string(attempt) + " " + launch), 1U) << attempt << job.out();
  EXPECT_THAT(job.err(), AllOf(HasSubstr("restart 1 of 3"), HasSubstr("restart 2 of 3")));
}

TEST(Restart, EndsWellWhenALaterAttemptDoes) {
  Launched job(shell_ranks(3, "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 9", {"--max-restarts=1"}));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.err(), HasSubstr("restart 1 of 1"));
}

TEST(Restart, FailsWithTheLastCulpritsCodeWhenTheyAreUsedUp) {
  Launched job(shell_ranks(2, "exit $((10 + TORCHELASTIC_RESTART_COUNT))", {"--max-restarts=2"}));
  EXPECT_EQ(job.wait(), 12);
  EXPECT_THAT(job.err(), HasSubstr("failed 3 times"));
}

TEST(Report, IsTheLastThingAndTellsCulpritsFromVictims) {
  // Rank 1 is the culprit; rank 0 answers its SIGTERM with noise; rank 2 fails a moment later.
  Launched job(shell_ranks(
      3,
      "case $RANK in"
      " 0) trap 'echo noise >&2; exit 143' TERM; trap '' USR1;;"
      " 1) trap 'i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo line $i >&2; done; echo boom >&2; exit 3' USR1;;"
      " 2) trap 'sleep 0.2; exit 1' TERM; trap '' USR1;; esac; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(testing::eventually([&] { return count(job.out(), "ready") == 3; }));
  job.send(SIGUSR1);
  EXPECT_EQ(job.wait(), 3);
  const std::string err = job.err();
  const std::string report = err.substr(err.rfind("cxxrun: sh failed"));
  EXPECT_LE(count(report, "\n"), 20U);
  EXPECT_THAT(report, AllOf(HasSubstr("rank 1 (local rank 1"), HasSubstr("exit code 3"), HasSubstr("| boom\n"),
                            HasSubstr("| line 100\n")));
  EXPECT_THAT(report, AllOf(HasSubstr("rank 0: stopped by cxxrun"), HasSubstr("rank 2: stopped by cxxrun, exit code 1"),
                            Not(HasSubstr("noise"))));
}

TEST(Report, QuotesTheErrorFileAndItsFolderIsGoneAfterwards) {
  const TempDir folder;
  Launched job(shell_ranks(2,
                           "[ $RANK = 1 ] || sleep 100; echo '{\"message\": {\"message\": \"ValueError: no wheels\", "
                           "\"extraInfo\": {}}}' > $TORCHELASTIC_ERROR_FILE; exit 1"),
               {.environment = {"TMPDIR=" + folder.path().string()}});
  EXPECT_EQ(job.wait(), 1);
  EXPECT_THAT(job.err(), HasSubstr("error: ValueError: no wheels"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Report, IsNotHeldUpByAChildThatKeepsStderrOpen) {
  Launched job(shell_ranks(2, "sleep 1000 & [ $RANK = 1 ] && { echo why >&2; exit 6; }; wait"));
  EXPECT_EQ(job.wait(), 6);
  EXPECT_THAT(job.err(), HasSubstr("| why\n"));
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(Report, ARankThatIgnoresTermIsKilledAfterTheGrace) {
  Launched job(shell_ranks(2, "[ $RANK = 1 ] && exit 1; trap '' TERM; while :; do sleep 1000; done",
                           {"--shutdown-timeout=0.5"}));
  EXPECT_EQ(job.wait(), 1);
  EXPECT_TRUE(job.leaves_nothing());
}

TEST(SeveralNodes, NumberTheirRanksTogetherAndEndTogether) {
  const auto node = [](const char* rank, int ranks, const std::string& script) {
    // A port that is free now; with the process id so that tests that run side by side differ.
    const std::string port = std::to_string(20000 + ::getpid() % 10000);
    return shell_ranks(
        ranks, script,
        {"--nnodes=2", fmt::format("--node-rank={}", rank), "--master-addr=127.0.0.1", "--master-port=" + port});
  };
  const std::string print =
      "echo rank $RANK of $WORLD_SIZE local $LOCAL_RANK of $LOCAL_WORLD_SIZE node $GROUP_RANK of $GROUP_WORLD_SIZE";
  Launched first(node("0", 2, print)), second(node("1", 1, print));
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_THAT(first.out(), AllOf(HasSubstr("rank 0 of 3 local 0 of 2 node 0 of 2\n"),
                                 HasSubstr("rank 1 of 3 local 1 of 2 node 0 of 2\n")));
  EXPECT_EQ(second.out(), "rank 2 of 3 local 0 of 1 node 1 of 2\n");

  Launched succeeding(node("0", 1, "exit 0")), failing(node("1", 1, "exit 5"));
  EXPECT_EQ(failing.wait(), 5);
  EXPECT_EQ(succeeding.wait(), 1);
  EXPECT_THAT(succeeding.err(), HasSubstr("ranks of another node failed"));
}

TEST(Python, ScriptsAreStartedThroughTheInterpreter) {
  const TempDir folder;
  const std::string script = (folder.path() / "train.py").string();
  // One write, because lines of ranks may mix below that.
  std::ofstream(script) << R"(import os, sys
os.write(1, ("%s %s\n" % (os.environ["RANK"], sys.argv[1:])).encode())
)";
  Launched job({cxxrun_path(), "--nproc_per_node", "2", script, "--lr", "1"});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.out(), AllOf(HasSubstr("0 ['--lr', '1']"), HasSubstr("1 ['--lr', '1']")));
  Launched missing({cxxrun_path(), (folder.path() / "absent.py").string()});
  EXPECT_EQ(missing.wait(), 1);
}

}  // namespace
}  // namespace cxxrun
