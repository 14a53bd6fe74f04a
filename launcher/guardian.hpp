// Two processes run a job, so that kill -9 of either leaves nothing behind. The guardian is the one that the user started: it
// takes the signals and passes them on. The supervisor below it does the work in a session of its own, out of the terminal's
// reach. Both are subreapers and hold the ends of one socket. If the supervisor dies, ranks die with it (parent-death signal)
// and the guardian ends what they leave; if the guardian dies, the supervisor ends everything. Main thread only.
#pragma once

#include <functional>

#include "common/control_channel.hpp"
#include "launcher/signal_source.hpp"

namespace cxxrun {

// Messages between the two: verb and number.
inline constexpr char kSignal[] = "signal";  // to the supervisor
inline constexpr char kRankStarted[] = "rank_started";  // to the guardian; its pid, which is its session's as well
inline constexpr char kRankEnded[] = "rank_ended";

// Forks; runs `supervise` in the child, whose result becomes its exit code, and guards it in the parent. Returns the exit
// code in both.
int run_guarded(SignalSource& signals, const std::function<int(ControlChannel guardian)>& supervise);

}  // namespace cxxrun
