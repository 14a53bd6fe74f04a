// Several cxxrun nodes of one machine that meet by c10d.
#include <algorithm>

#include <gmock/gmock.h>

#include "launcher/rendezvous/listen_socket.hpp"
#include "tests/support/launched.hpp"

namespace cxxrun::testing {
namespace {

using ::testing::HasSubstr;

class Elastic : public ::testing::Test {
 protected:
  std::vector<std::string> node(const std::string& nodes, int ranks, const std::string& script) const {
    return shell_ranks(ranks, script,
                       {"--nnodes=" + nodes, "--rdzv-backend=c10d", "--max-restarts=1", "--rdzv-id=job",
                        "--rdzv-conf=last_call_timeout=1", fmt::format("--rdzv-endpoint=127.0.0.1:{}", port_)});
  }
  // By then the node hosts.
  static void wait_until_listening(int port) {
    EXPECT_TRUE(eventually([&] {
      try {
        open_listener("127.0.0.1", {port, true}, {});
        return false;
      } catch (const PortInUse&) {
        return true;
      }
    }));
  }

  const TempDir folder_;
  const int port_ = open_listener("127.0.0.1", {}, {}).port;
};

TEST_F(Elastic, RanksOfNodesOfDifferentSizeAreNumberedThroughInOrderOfArrival) {
  Launched first(node("2", 2, "echo $GROUP_RANK $RANK of $WORLD_SIZE"));
  wait_until_listening(port_);
  Launched second(node("2", 1, "echo $GROUP_RANK $RANK of $WORLD_SIZE"));
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
  EXPECT_THAT(first.out(), HasSubstr("0 0 of 3\n"));
  EXPECT_THAT(first.out(), HasSubstr("0 1 of 3\n"));
  EXPECT_EQ(second.out(), "1 2 of 3\n");
}

TEST_F(Elastic, ARestartOfOneNodeRestartsTheOtherAndUsesUpNoneOfItsRestarts) {
  Launched first(node("2", 1, "echo attempt $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ]"));
  wait_until_listening(port_);
  Launched second(node("2", 1, "echo start; [ -e again ] && exit 0; touch again; exec sleep 100"),
                  {.working_directory = folder_.path()});
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
  EXPECT_EQ(first.out(), "attempt 0\nattempt 1\n");
  EXPECT_EQ(second.out(), "start\nstart\n");
}

TEST_F(Elastic, AFailureForGoodEndsTheOtherNode) {
  Launched first(node("2", 1, "exec sleep 100"));
  wait_until_listening(port_);
  Launched second(node("2", 1, "exit 7"));
  EXPECT_EQ(second.wait(), 7);
  EXPECT_EQ(first.wait(), 1);
  EXPECT_THAT(first.err(), HasSubstr("node 2"));
}

TEST_F(Elastic, TheOtherNodeEndsWhenTheSupervisorOfTheHostIsKilled) {
  Launched first(node("2", 1, "echo up; exec sleep 100"));
  wait_until_listening(port_);
  Launched second(node("2", 1, "echo up; exec sleep 100"));
  EXPECT_TRUE(first.waits_for("up"));
  EXPECT_TRUE(second.waits_for("up"));
  ::kill(first.supervisor(), SIGKILL);
  EXPECT_EQ(second.wait(), 1);
  EXPECT_THAT(second.err(), HasSubstr("the node that hosts the rendezvous is lost"));
  EXPECT_TRUE(first.leaves_nothing());
}

TEST_F(Elastic, ANodeThatComesLaterIsTakenIn) {
  const std::string script = "echo of $WORLD_SIZE; [ $WORLD_SIZE = 2 ] && exit 0; exec sleep 100";
  Launched first(node("1:2", 1, script));
  EXPECT_TRUE(first.waits_for("of 1\n"));
  Launched second(node("1:2", 1, script));
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
  EXPECT_EQ(first.out(), "of 1\nof 2\n");
}

TEST_F(Elastic, WhatARankReportedBeforeTheNodesChangedIsNotReportedAfterwards) {
  const std::string script =
      "[ -e again ] && exit 5; touch again; echo '{\"message\": \"of the first round\"}' > $TORCHELASTIC_ERROR_FILE; echo up; "
      "exec sleep 100";
  std::vector<std::string> command = node("1:2", 1, script);
  std::replace(command.begin(), command.end(), std::string("--max-restarts=1"), std::string("--max-restarts=0"));
  Launched first(command, {.working_directory = folder_.path()});
  EXPECT_TRUE(first.waits_for("up"));
  Launched second(node("1:2", 1, "exec sleep 100"));
  EXPECT_EQ(first.wait(), 5);
  EXPECT_THAT(first.err(), ::testing::Not(HasSubstr("of the first round")));
  EXPECT_EQ(second.wait(), 1);
}

}  // namespace
}  // namespace cxxrun::testing
