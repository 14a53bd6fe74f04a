#include "launcher/supervisor_table.hpp"

namespace cxxrun {
namespace {

using enum State;
using E = Event;
using A = Action;

constexpr TableRow kTable[] = {
    {kJoining, E::kJoined, {kRunning, A::kStartRanks}},
    {kJoining, E::kStopSignal, {kDone, A::kFinish}},
    {kJoining, E::kGuardianLost, {kDone, A::kFinish}},

    {kRunning, E::kAllSucceeded, {kSweeping, A::kSweep}},
    {kRunning, E::kRankFailed, {kFailing, A::kStopPeers}},
    {kRunning, E::kRankFailedWithRestartsLeft, {kRestarting, A::kStopPeers}},
    {kRunning, E::kNodesChanged, {kRestarting, A::kStopPeers}},
    {kRunning, E::kPeerNodeFailed, {kFailing, A::kStopPeers}},
    {kRunning, E::kHangDue, {kRunning, A::kLookForHang}},
    {kRunning, E::kStragglersDue, {kRunning, A::kWarnStragglers}},
    {kRunning, E::kPassSignal, {kRunning, A::kPassOn}},
    {kRunning, E::kStopSignal, {kStopping, A::kForwardSignal}},
    {kRunning, E::kGuardianLost, {kKilling, A::kKillRanks}},

    {kFailing, E::kAllGone, {kSweeping, A::kSweep}},
    {kFailing, E::kGraceExpired, {kFailing, A::kKillRanks}},
    {kFailing, E::kKillExpired, {kDone, A::kGiveUp}},
    {kFailing, E::kPassSignal, {kFailing, A::kPassOn}},
    // The ranks have been told to end already; a second SIGTERM would cut short what they do about the first.
    {kFailing, E::kStopSignal, {kStopping, A::kNone}},
    {kFailing, E::kStopAgain, {kKilling, A::kKillRanks}},
    {kFailing, E::kGuardianLost, {kKilling, A::kKillRanks}},

    {kRestarting, E::kAllGone, {kSweepingToRestart, A::kSweep}},
    {kRestarting, E::kGraceExpired, {kRestarting, A::kKillRanks}},
    {kRestarting, E::kKillExpired, {kDone, A::kGiveUp}},
    {kRestarting, E::kPassSignal, {kRestarting, A::kPassOn}},
    {kRestarting, E::kStopSignal, {kStopping, A::kNone}},
    {kRestarting, E::kStopAgain, {kKilling, A::kKillRanks}},
    {kRestarting, E::kGuardianLost, {kKilling, A::kKillRanks}},

    {kStopping, E::kAllGone, {kSweeping, A::kSweep}},
    {kStopping, E::kGraceExpired, {kStopping, A::kKillRanks}},
    {kStopping, E::kKillExpired, {kDone, A::kGiveUp}},
    {kStopping, E::kPassSignal, {kStopping, A::kPassOn}},
    {kStopping, E::kStopAgain, {kKilling, A::kKillRanks}},
    {kStopping, E::kGuardianLost, {kKilling, A::kKillRanks}},

    {kKilling, E::kAllGone, {kSweeping, A::kKillLeftovers}},
    {kKilling, E::kKillExpired, {kDone, A::kGiveUp}},

    {kSweeping, E::kNothingLeft, {kDone, A::kFinish}},
    {kSweeping, E::kSweepExpired, {kSweeping, A::kKillLeftovers}},
    {kSweeping, E::kKillExpired, {kDone, A::kGiveUp}},
    {kSweeping, E::kStopSignal, {kSweeping, A::kKillLeftovers}},
    {kSweeping, E::kStopAgain, {kSweeping, A::kKillLeftovers}},
    {kSweeping, E::kGuardianLost, {kSweeping, A::kKillLeftovers}},

    {kSweepingToRestart, E::kNothingLeft, {kPausing, A::kPause}},
    {kSweepingToRestart, E::kSweepExpired, {kSweepingToRestart, A::kKillLeftovers}},
    {kSweepingToRestart, E::kKillExpired, {kDone, A::kGiveUp}},
    {kSweepingToRestart, E::kStopSignal, {kSweeping, A::kKillLeftovers}},
    {kSweepingToRestart, E::kStopAgain, {kSweeping, A::kKillLeftovers}},
    {kSweepingToRestart, E::kGuardianLost, {kSweeping, A::kKillLeftovers}},

    {kPausing, E::kPauseOver, {kJoining, A::kJoin}},
    {kPausing, E::kStopSignal, {kDone, A::kFinish}},
    {kPausing, E::kGuardianLost, {kDone, A::kFinish}},
};

}  // namespace

std::span<const TableRow> supervisor_table() { return kTable; }

Transition transition(State state, Event event) {
  for (const TableRow& row : kTable) {
    if (row.state == state && row.event == event) return row.transition;
  }
  return {state, Action::kNone};
}

const char* name_of(State state) {
  static constexpr const char* kNames[] = {"Joining", "Running",  "Failing",           "Restarting", "Stopping",
                                           "Killing", "Sweeping", "SweepingToRestart", "Pausing",    "Done"};
  return kNames[static_cast<size_t>(state)];
}

const char* name_of(Event event) {
  static constexpr const char* kNames[] = {"Joined",       "RankFailed",   "RankFailedWithRestartsLeft",
                                           "NodesChanged", "PeerNodeFailed",
                                           "AllSucceeded", "AllGone",      "NothingLeft",
                                           "StopSignal",   "StopAgain",    "PassSignal",
                                           "GuardianLost", "GraceExpired", "SweepExpired",
                                           "KillExpired",  "HangDue",      "PauseOver",                  "StragglersDue"};
  return kNames[static_cast<size_t>(event)];
}

}  // namespace cxxrun
