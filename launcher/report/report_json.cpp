#include "launcher/report/report_json.hpp"

#include <fmt/chrono.h>
#include <nlohmann/json.hpp>

#include "launcher/report/exit_status.hpp"

namespace cxxrun {
namespace {

using nlohmann::json;

std::string iso_time(int64_t seconds) { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(seconds))); }

int64_t unix_seconds(RankOutcome::WallTime time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

json describe_rank(const RankOutcome& rank) {
  const bool ended = rank.status.has_value();
  return {{"rank", rank.rank},
          {"local_rank", rank.local_rank},
          {"pid", rank.pid},
          {"exit_code", ended && rank.status->signo == 0 ? json(rank.status->code) : json(nullptr)},
          {"signal", ended && rank.status->signo != 0 ? json(signal_name(rank.status->signo)) : json(nullptr)},
          {"ran_for_s", static_cast<double>(rank.ran_for.count()) / 1000},
          {"last_step", or_null(rank.last_step)},
          {"stopped_by_cxxrun", rank.asked_to_end},
          {"killed_by_cxxrun", rank.killed_by_us}};
}

json describe_culprit(const JobOutcome& job) {
  if (!job.culprit) return nullptr;
  const RankOutcome& culprit = job.ranks[*job.culprit];
  json description = describe_rank(culprit);
  description["meaning"] = describe_culprits_end(job);
  description["hung"] = culprit.silent_for.has_value();
  description["error"] = culprits_error(job);
  description["error_file"] = culprit.error_file.empty() ? json(nullptr) : json(culprit.error_file);
  description["stderr_tail"] = culprit.last_lines;
  description["remedy"] = find_remedy(job);
  return description;
}

}  // namespace

std::string format_report_json(const JobOutcome& job, const LaunchPlan& plan, RankOutcome::WallTime ended_at) {
  const int64_t end = unix_seconds(ended_at);
  json argv = {plan.options.program};
  for (const std::string& argument : plan.options.program_args) argv.push_back(argument);
  json ranks = json::array();
  for (const RankOutcome& rank : job.ranks) ranks.push_back(describe_rank(rank));
  const json report = {{"schema_version", 1},
                       {"program", job.program},
                       {"argv", argv},
                       {"run_id", plan.options.run_id},
                       {"node_rank", plan.options.node_rank},
                       {"exit_code", job.exit_code},
                       {"attempts", job.attempts},
                       {"started", iso_time(plan.launch_time)},
                       {"started_unix", plan.launch_time},
                       {"ended", iso_time(end)},
                       {"ended_unix", end},
                       {"duration_s", end - plan.launch_time},
                       {"stop_signal", job.stop_signal != 0 ? json(signal_name(job.stop_signal)) : json(nullptr)},
                       {"peer_node_failed", job.peer_node_failed},
                       {"oom_kills", job.oom_kills},
                       {"error", job.error.empty() ? json(nullptr) : json(job.error)},
                       {"culprit", describe_culprit(job)},
                       {"ranks", ranks}};
  // What ranks say may be any bytes; JSON may not.
  return report.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace cxxrun
