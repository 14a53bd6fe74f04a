#include "launcher/supervisor_table.hpp"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

namespace cxxrun {
namespace {

TEST(SupervisorTable, SaysOneThingForEachPair) {
  std::set<std::pair<State, Event>> seen;
  for (const TableRow& row : supervisor_table()) {
    EXPECT_TRUE(seen.emplace(row.state, row.event).second) << name_of(row.state) << " " << name_of(row.event);
  }
}

TEST(SupervisorTable, PairsThatAreNotListedChangeNothing) {
  EXPECT_EQ(transition(State::kDone, Event::kStopSignal).next, State::kDone);
  EXPECT_EQ(transition(State::kStopping, Event::kRankFailed).next, State::kStopping);
  EXPECT_EQ(transition(State::kStopping, Event::kRankFailed).action, Action::kNone);
}

TEST(SupervisorTable, NothingFollowsTheEnd) {
  for (const TableRow& row : supervisor_table()) EXPECT_NE(row.state, State::kDone);
}

TEST(SupervisorTable, EveryStateIsLeftWhenTheGuardianIsLostOrASecondSignalComes) {
  for (const State state : {State::kJoining, State::kRunning, State::kFailing, State::kRestarting, State::kStopping,
                            State::kSweepingToRestart, State::kPausing}) {
    EXPECT_NE(transition(state, Event::kGuardianLost).next, state) << name_of(state);
  }
  for (const State state : {State::kFailing, State::kRestarting, State::kStopping}) {
    EXPECT_EQ(transition(state, Event::kStopAgain).action, Action::kKillRanks) << name_of(state);
  }
}

TEST(SupervisorTable, EveryWaitForRanksEndsBySomeTimer) {
  for (const State state : {State::kFailing, State::kRestarting, State::kStopping}) {
    EXPECT_EQ(transition(state, Event::kGraceExpired).action, Action::kKillRanks) << name_of(state);
    EXPECT_EQ(transition(state, Event::kKillExpired).next, State::kDone) << name_of(state);
  }
  for (const State state : {State::kSweeping, State::kSweepingToRestart}) {
    EXPECT_EQ(transition(state, Event::kSweepExpired).action, Action::kKillLeftovers) << name_of(state);
    EXPECT_EQ(transition(state, Event::kKillExpired).next, State::kDone) << name_of(state);
  }
}

TEST(SupervisorTable, AStopSignalAlwaysEndsTheJobWithoutARestart) {
  const std::set<State> restarting = {State::kRestarting, State::kSweepingToRestart, State::kPausing};
  for (const State start :
       {State::kJoining, State::kRunning, State::kFailing, State::kRestarting, State::kSweepingToRestart,
                            State::kPausing}) {
    // Everything that can be reached after the signal.
    std::set<State> reached = {transition(start, Event::kStopSignal).next};
    for (size_t before = 0; before != reached.size();) {
      before = reached.size();
      for (const TableRow& row : supervisor_table()) {
        if (reached.contains(row.state)) reached.insert(row.transition.next);
      }
    }
    for (const State state : restarting) EXPECT_FALSE(reached.contains(state)) << name_of(start);
    EXPECT_TRUE(reached.contains(State::kDone)) << name_of(start);
  }
}

TEST(SupervisorTable, ARankThatFailsWhileOthersRunMeansTellingThem) {
  EXPECT_EQ(transition(State::kRunning, Event::kRankFailed).action, Action::kStopPeers);
  EXPECT_EQ(transition(State::kRunning, Event::kRankFailedWithRestartsLeft).next, State::kRestarting);
}

}  // namespace
}  // namespace cxxrun
