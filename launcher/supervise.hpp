// The supervisor process: turns signals, exits, timers, messages and the store's sockets into the supervisor's events, and
// ends with its report. Everything else is decided in Supervisor. Main thread only; throws Error.
#pragma once

#include "common/control_channel.hpp"
#include "launcher/rank_plan.hpp"
#include "launcher/signal_source.hpp"

namespace cxxrun {

RendezvousOptions rendezvous_options(const LaunchPlan& plan);

// Returns cxxrun's exit code.
int supervise(const LaunchPlan& plan, const std::string& log_folder, ControlChannel guardian, SignalSource& signals);

}  // namespace cxxrun
