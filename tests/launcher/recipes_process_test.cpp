// What users of launchers report most, asked from outside, where the tests of the parts do not.
#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "launcher/rendezvous/listen_socket.hpp"
#include "tests/support/launched.hpp"

namespace cxxrun {
namespace {

using namespace std::chrono_literals;
using testing::count;
using ::testing::HasSubstr;
using testing::Launched;
using testing::shell_ranks;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kSoon{12};  // on a busy machine; what goes wrong here takes minutes, or for ever

TEST(BusyPort, TorchrunsDefaultIsNotNeeded) {
  std::optional<BoundSocket> taken;
  try {
    taken = open_listener("", {29500, true}, {});
  } catch (const Error&) {  // somebody else has it
  }
  Launched job(shell_ranks(2, "echo port $MASTER_PORT"), {.environment = {"MASTER_PORT"}});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(count(job.out(), "port "), 2U);
  EXPECT_EQ(count(job.out(), "port 29500\n"), 0U);
}

TEST(BusyPort, ThirtyJobsAtOnceHaveThirtyPorts) {
  const TempDir folder;
  const std::string go = (folder.path() / "go").string();
  std::vector<std::unique_ptr<Launched>> jobs;
  for (int job = 0; job < 30; ++job) {
    jobs.push_back(std::make_unique<Launched>(
        shell_ranks(2, "echo port $MASTER_PORT; while [ ! -e " + go + " ]; do sleep 0.1; done"),
        Launched::Options{.environment = {"MASTER_PORT"}}));
  }
  for (const auto& job : jobs) EXPECT_TRUE(testing::eventually([&] { return count(job->out(), "\n") == 2; }));
  std::ofstream(go) << "go";
  std::map<std::string, int> ports;
  for (const auto& job : jobs) {
    EXPECT_EQ(job->wait(), 0) << job->err();
    const std::string first = job->out().substr(0, job->out().find('\n') + 1);
    EXPECT_EQ(job->out(), first + first) << "the ranks of a job have the same one";
    ++ports[first];
  }
  EXPECT_EQ(ports.size(), jobs.size());
}

TEST(BusyPort, ThatIsAskedForIsAnErrorAtOnce) {
  const BoundSocket taken = open_listener("127.0.0.1", {}, {});
  const auto start = Clock::now();
  Launched job(shell_ranks(2, "echo started", {fmt::format("--master-port={}", taken.port)}));
  EXPECT_EQ(job.wait(), 1);
  EXPECT_LT(Clock::now() - start, kSoon);
  EXPECT_EQ(job.out(), "");
  EXPECT_THAT(job.err(), ::testing::AllOf(HasSubstr("127.0.0.1"), HasSubstr(std::to_string(taken.port))));
}

TEST(KilledLauncher, FreesItsPort) {
  const int port = open_listener("", {}, {}).port;
  Launched job(shell_ranks(2, "echo ready; sleep 1000 & sleep 1000", {fmt::format("--master-port={}", port)}));
  ASSERT_TRUE(testing::eventually([&] { return count(job.out(), "ready") == 2; }));
  job.send(SIGKILL);
  EXPECT_EQ(job.wait(), 137);
  EXPECT_TRUE(testing::eventually([&] { return job.marked().empty(); }, kSoon));
  EXPECT_EQ(open_listener("", {port, true}, {}).port, port);
}

// What is left of a rank holds stdout open, ignores SIGTERM or has a session of its own.
TEST(GrandchildrenOfADeadRank, DoNotHoldUpTheEnd) {
  for (const char* child :
       {"sleep 999 &", "(trap '' TERM; sleep 999) &", "setsid sh -c 'trap \"\" TERM; sleep 999' &"}) {
    const auto start = Clock::now();
    Launched job(shell_ranks(2, fmt::format("{} [ $RANK = 1 ] && exit 1; wait", child)));
    EXPECT_EQ(job.wait(), 1);
    EXPECT_LT(Clock::now() - start, kSoon) << child;
    EXPECT_TRUE(job.marked().empty()) << child;
  }
}

TEST(Grace, IsAsLongAsAskedFor) {
  Launched job(
      shell_ranks(2, "trap 'echo heard' TERM; echo ready; while :; do sleep 0.05; done", {"--shutdown-timeout=1"}));
  ASSERT_TRUE(testing::eventually([&] { return count(job.out(), "ready") == 2; }));
  const auto start = Clock::now();
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 143);
  EXPECT_GE(Clock::now() - start, 900ms);
  EXPECT_LE(Clock::now() - start, kSoon);
  EXPECT_EQ(count(job.out(), "heard"), 2U) << "once each";
  EXPECT_THAT(job.err(), HasSubstr("2 of 2 ranks had to be killed"));
}

TEST(RootCause, OfRanksThatAllFailAlikeIsSaidOnce) {
  Launched job(shell_ranks(4, "echo 'no such dataset' >&2; exit 3", {"--local-ranks-filter=7"}));
  EXPECT_EQ(job.wait(), 3);
  EXPECT_EQ(count(job.err(), "no such dataset"), 1U) << job.err();
}

TEST(OneRankDies, AndTheOthersWhoIgnoreItAreGoneAfterTheGrace) {
  for (int failing = 0; failing < 4; ++failing) {
    const auto start = Clock::now();
    Launched job(
        shell_ranks(4, fmt::format("[ $RANK = {} ] && exit 1; trap '' TERM; while :; do sleep 0.05; done", failing),
                    {"--shutdown-timeout=0.5"}));
    EXPECT_EQ(job.wait(), 1);
    EXPECT_LT(Clock::now() - start, kSoon) << failing;
    EXPECT_THAT(job.err(), HasSubstr(fmt::format("rank {} (local rank {}", failing, failing)));
    EXPECT_TRUE(job.marked().empty());
  }
}

TEST(OneRankEndsWellEarly, AndTheOthersGoOn) {
  const TempDir folder;
  const std::string ended = (folder.path() / "ended").string();
  Launched job(
      shell_ranks(2, fmt::format("if [ $RANK = 1 ]; then : > {0}; exit 0; fi; while [ ! -e {0} ]; do sleep 0.02; done; "
                                 "sleep 0.3; echo went on",
                                 ended)));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "went on\n");
}

// Lists reach the ranks as they are, whatever they number.
TEST(DeviceLists, DriveGpuAndStayAsTheyAre) {
  const std::pair<const char*, size_t> kLists[] = {
      {"2,5", 2}, {"GPU-89,GPU-ab", 2}, {"MIG-1,MIG-2", 2}, {"0,,1", 1}, {" 3 , 1", 2}};
  for (const auto& [list, ranks] : kLists) {
    Launched job(shell_ranks(1, "echo \"<$CUDA_VISIBLE_DEVICES>\"", {"--nproc-per-node=gpu"}),
                 {.environment = {"CXXRUN_FAKE_GPUS=8", std::string("CUDA_VISIBLE_DEVICES=") + list}});
    EXPECT_EQ(job.wait(), 0) << job.err();
    EXPECT_EQ(count(job.out(), fmt::format("<{}>\n", list)), ranks) << job.out();
  }
  for (const char* list : {"", "-1"}) {
    const Launched::Options options{.environment = {"CXXRUN_FAKE_GPUS=8", std::string("CUDA_VISIBLE_DEVICES=") + list}};
    Launched refused(shell_ranks(1, "echo started", {"--nproc-per-node=gpu"}), options);
    EXPECT_EQ(refused.wait(), 2);
    EXPECT_EQ(refused.out(), "");
    EXPECT_THAT(refused.err(), HasSubstr("no GPU is visible"));
    Launched on_the_cpu(shell_ranks(3, "echo started"), options);
    EXPECT_EQ(on_the_cpu.wait(), 0);
    EXPECT_EQ(count(on_the_cpu.out(), "started"), 3U);
  }
}

TEST(DeviceLists, MoreRanksThanGpusIsOneWarningWithBothNumbers) {
  Launched job(shell_ranks(3, "exit 0"), {.environment = {"CXXRUN_FAKE_GPUS=1", "CUDA_VISIBLE_DEVICES"}});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(count(job.err(), "\n"), 1U) << job.err();
  EXPECT_THAT(job.err(), ::testing::AllOf(HasSubstr("--nproc-per-node=3"), HasSubstr("1 GPU")));
}

}  // namespace
}  // namespace cxxrun
