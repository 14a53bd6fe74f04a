#include "launcher/rank_plan.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "common/worker_env.hpp"

namespace cxxrun {

std::string substitute_macros(const std::string& text, int local_rank) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  static constexpr std::string_view kBraced = "${local_rank}";
  static constexpr std::string_view kPlain = "$local_rank";
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = std::string_view(text).substr(i);
    if (rest.starts_with("$$")) {
      result += '$';
      i += 2;
    } else if (rest.starts_with(kBraced)) {
      result += std::to_string(local_rank);
      i += kBraced.size();
    } else if (rest.starts_with(kPlain) && !(rest.size() > kPlain.size() && is_word(rest[kPlain.size()]))) {
      result += std::to_string(local_rank);
      i += kPlain.size();
    } else {
      result += text[i++];
    }
  }
  return result;
}

std::vector<std::pair<std::string, std::string>> default_variables(int local_ranks, int usable_cpus,
                                                                   const Environment& environment) {
  std::vector<std::pair<std::string, std::string>> defaults;
  if (local_ranks > 1 && !environment("OMP_NUM_THREADS")) {
    defaults.emplace_back("OMP_NUM_THREADS", std::to_string(std::max(1, usable_cpus / local_ranks)));
  }
  if (!environment("TORCH_NCCL_ASYNC_ERROR_HANDLING")) defaults.emplace_back("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  return defaults;
}

std::vector<RankPlan> plan_ranks(const LaunchPlan& launch, const RendezvousResult& meeting, int attempt,
                                 const std::string& error_folder) {
  std::vector<RankPlan> plans;
  for (int local_rank = 0; local_rank < launch.local_ranks; ++local_rank) {
    RankPlan plan{.rank = static_cast<int>(meeting.base_global_rank) + local_rank, .local_rank = local_rank};
    plan.error_file = error_folder.empty() ? "" : fmt::format("{}/{}/error.json", error_folder, local_rank);
    const auto& leading = launch.program.leading_args;
    for (size_t i = 0; i < leading.size(); ++i) {
      plan.argv.push_back(i < launch.program.macro_start ? leading[i] : substitute_macros(leading[i], local_rank));
    }
    for (const std::string& argument : launch.options.program_args) {
      plan.argv.push_back(substitute_macros(argument, local_rank));
    }

    plan.environment = {
        {"LOCAL_RANK", std::to_string(local_rank)},
        {"RANK", std::to_string(plan.rank)},
        {"GROUP_RANK", std::to_string(meeting.group_rank)},
        {"ROLE_RANK", std::to_string(meeting.base_role_rank + local_rank)},
        {"ROLE_NAME", launch.options.role},
        {"LOCAL_WORLD_SIZE", std::to_string(launch.local_ranks)},
        {"WORLD_SIZE", std::to_string(meeting.global_world_size)},
        {"GROUP_WORLD_SIZE", std::to_string(meeting.group_world_size)},
        {"ROLE_WORLD_SIZE", std::to_string(meeting.role_world_size)},
        {"MASTER_ADDR", meeting.master_addr},
        {"MASTER_PORT", std::to_string(meeting.master_port)},
        {"TORCHELASTIC_RESTART_COUNT", std::to_string(attempt)},
        {"TORCHELASTIC_MAX_RESTARTS", std::to_string(launch.options.max_restarts)},
        {"TORCHELASTIC_RUN_ID", launch.options.run_id},
        {"TORCHELASTIC_USE_AGENT_STORE", meeting.use_agent_store ? "True" : "False"},
        {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
        {"TORCHELASTIC_ERROR_FILE", plan.error_file},
        {kLaunchTimeVariable, std::to_string(launch.launch_time)},
    };
    plan.environment.insert(plan.environment.end(), launch.defaults.begin(), launch.defaults.end());
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace cxxrun
