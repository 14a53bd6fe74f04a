// --event-log-handler console: what happens, as the JSON lines of torch.distributed.elastic's events.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "launcher/rank_plan.hpp"
#include "launcher/report/job_outcome.hpp"

namespace cxxrun {

class EventLog {
 public:
  using Write = std::function<void(const std::string& line)>;
  EventLog(const LaunchPlan& plan, std::string host, Write write);

  // RENDEZVOUS, SUCCEEDED or FAILED of this node.
  void node(const std::string& state) { write(state, nullptr); }
  // START, SUCCEEDED, FAILED or TERMINATED of a rank.
  void rank(const std::string& state, const RankOutcome& rank) { write(state, &rank); }
  void met(const RendezvousResult& meeting, int attempt);  // what the next lines are about

 private:
  void write(const std::string& state, const RankOutcome* rank);

  const LaunchPlan& plan_;
  std::string host_;
  Write write_;
  std::optional<RendezvousResult> meeting_;
  int attempt_ = 0;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

}  // namespace cxxrun
