#include "launcher/report/event_log.hpp"

#include <ctime>

#include <nlohmann/json.hpp>

namespace cxxrun {
namespace {

using nlohmann::ordered_json;

constexpr char kNoError[] = R"({"message": "<NONE>"})";

ordered_json or_null(bool known, ordered_json value) { return known ? std::move(value) : ordered_json(nullptr); }

}  // namespace

EventLog::EventLog(const LaunchPlan& plan, std::string host, Write write)
    : plan_(plan), host_(std::move(host)), write_(std::move(write)) {}

void EventLog::met(const RendezvousResult& meeting, int attempt) {
  meeting_ = meeting;
  attempt_ = attempt;
}

void EventLog::write(const std::string& state, const RankOutcome* rank) {
  const bool failed = rank && rank->status && state == "FAILED";
  ordered_json details = {{"group_world_size", or_null(meeting_.has_value(), meeting_ ? meeting_->group_world_size : 0)},
                          {"entry_point", plan_.options.program}};
  if (rank) {
    details["local_rank"] = {rank->local_rank};
    details["role_rank"] = {meeting_->base_role_rank + rank->local_rank};
    details["role_world_size"] = {meeting_->role_world_size};
    details["exit_code"] = {or_null(failed, failed ? rank->status->python_code() : 0)};
    details["worker_pid"] = {or_null(failed, rank->pid)};
  }
  const auto dump = [](const ordered_json& value) {
    return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  };
  const auto running = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - started_);
  const ordered_json event = {
      {"name", "torchelastic.worker.status." + state},
      {"source", rank ? "WORKER" : "AGENT"},
      {"timestamp", std::time(nullptr)},
      {"metadata",
       {{"run_id", plan_.options.run_id},
        {"global_rank", or_null(rank, rank ? rank->rank : 0)},
        {"group_rank", or_null(meeting_.has_value(), meeting_ ? meeting_->group_rank : 0)},
        {"worker_id", or_null(rank, rank ? std::to_string(rank->pid) : "")},
        {"role", plan_.options.role},
        {"hostname", host_},
        {"state", state},
        {"total_run_time", running.count()},
        {"rdzv_backend", plan_.options.rdzv_backend},
        {"raw_error", or_null(failed, failed && !rank->error.document.empty() ? rank->error.document : kNoError)},
        {"metadata", dump(details)},
        {"agent_restarts", attempt_},
        {"duration_ms", nullptr}}},
  };
  write_(dump(event));
}

}  // namespace cxxrun
