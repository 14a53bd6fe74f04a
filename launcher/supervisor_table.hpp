// What the supervisor does next, as data: (state, event) -> (state, action). Pairs that are not listed change nothing.
// Pure; the supervisor turns exits, signals and timers into events and carries the actions out.
#pragma once

#include <cstdint>
#include <span>

namespace cxxrun {

enum class State : uint8_t {
  kJoining,  // waiting for the other nodes; no rank runs
  kRunning,
  kFailing,  // a rank failed, its peers are being ended; the job is over
  kRestarting,  // the same, with restarts left
  kStopping,  // a signal asked for the end; ranks have their grace
  kKilling,  // no grace any more
  kSweeping,  // all ranks are gone; what they left behind is being ended
  kSweepingToRestart,
  kPausing,  // before a restart
  kDone,
};

enum class Event : uint8_t {
  kJoined,
  kRankFailed,
  kRankFailedWithRestartsLeft,
  kNodesChanged,  // another node starts again, came or left
  kPeerNodeFailed,
  kAllSucceeded,
  kAllGone,  // every rank of the attempt has ended, however
  kNothingLeft,  // and so have their descendants
  kStopSignal,  // the first TERM, INT, QUIT or HUP
  kStopAgain,  // a further one
  kPassSignal,  // USR1, USR2, stop and continue
  kGuardianLost,
  kGraceExpired,
  kSweepExpired,  // leftovers had their moment
  kKillExpired,  // SIGKILL did not help: uninterruptible sleep
  kHangDue,  // time to look at heartbeats
  kPauseOver,
  kStragglersDue,  // some ranks ended well a while ago, others still run
};

enum class Action : uint8_t {
  kNone,
  kJoin,
  kStartRanks,
  kStopPeers,  // tell survivors who failed, SIGTERM, start the grace
  kForwardSignal,  // the signal that came, start the grace
  kPassOn,  // the signal that came, nothing else
  kKillRanks,  // SIGKILL, start the last wait
  kSweep,  // SIGTERM to leftovers, start their moment
  kKillLeftovers,
  kWarnStragglers,
  kLookForHang,
  kPause,
  kFinish,
  kGiveUp,  // leave what cannot be killed, and say so
};

struct Transition {
  State next;
  Action action;
};

struct TableRow {
  State state;
  Event event;
  Transition transition;
};

std::span<const TableRow> supervisor_table();
Transition transition(State state, Event event);

const char* name_of(State state);
const char* name_of(Event event);

}  // namespace cxxrun
