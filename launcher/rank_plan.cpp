#include "launcher/rank_plan.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "common/worker_env.hpp"
#include "launcher/template_text.hpp"

namespace cxxrun {

std::string substitute_macros(const std::string& text, int local_rank) {
  return safe_substitute(text, [&](std::string_view name) {
    return name == "local_rank" ? std::optional(std::to_string(local_rank)) : std::nullopt;
  });
}

std::vector<std::pair<std::string, std::string>> default_variables(int local_ranks, int usable_cpus,
                                                                   const Environment& environment) {
  std::vector<std::pair<std::string, std::string>> defaults;
  if (!environment("OMP_NUM_THREADS")) {
    defaults.emplace_back("OMP_NUM_THREADS", std::to_string(std::max(1, usable_cpus / local_ranks)));
  }
  if (!environment("TORCH_NCCL_ASYNC_ERROR_HANDLING")) defaults.emplace_back("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  return defaults;
}

namespace {

// One stream of a rank: `bit` is its digit in --redirects and --tee.
StreamPlan plan_stream(const OutputOptions& options, int local_rank, int bit, const std::string& file) {
  const bool teed = (options.tee.of(local_rank) & bit) != 0;
  const bool redirected = (options.redirects.of(local_rank) & bit) != 0;
  const bool shown = !options.shown_ranks || options.shown_ranks->contains(local_rank);
  const bool console = shown && (teed || !redirected);
  return {.console = console, .file = teed || redirected ? file : "", .teed = teed};
}

void plan_files(RankPlan& plan, const OutputOptions& options, const std::string& attempt_folder) {
  const std::string folder =
      attempt_folder.empty() ? "" : fmt::format("{}/{}/", attempt_folder, plan.local_rank);
  const auto file = [&](const char* name) { return folder.empty() ? "" : folder + name; };
  plan.error_file = file("error.json");
  plan.out = plan_stream(options, plan.local_rank, 1, file("stdout.log"));
  plan.err = plan_stream(options, plan.local_rank, 2, file("stderr.log"));
}

std::vector<std::string> plan_arguments(const LaunchPlan& launch, int local_rank) {
  std::vector<std::string> argv;
  const auto& leading = launch.program.leading_args;
  for (size_t i = 0; i < leading.size(); ++i) {
    argv.push_back(i < launch.program.macro_start ? leading[i] : substitute_macros(leading[i], local_rank));
  }
  if (launch.options.launch_compat) argv.push_back(fmt::format("--local-rank={}", local_rank));
  for (const std::string& argument : launch.options.program_args) {
    argv.push_back(substitute_macros(argument, local_rank));
  }
  return argv;
}

}  // namespace

std::vector<RankPlan> plan_ranks(const LaunchPlan& launch, const RendezvousResult& meeting, int attempt,
                                 const std::string& attempt_folder) {
  const LauncherOptions& options = launch.options;
  std::vector<RankPlan> plans;
  for (int local_rank = 0; local_rank < launch.local_ranks; ++local_rank) {
    RankPlan plan{.rank = static_cast<int>(meeting.base_global_rank) + local_rank, .local_rank = local_rank};
    plan.argv = plan_arguments(launch, local_rank);
    plan_files(plan, options.output, attempt_folder);
    if (!launch.placements.empty()) plan.placement = launch.placements[static_cast<size_t>(local_rank)];

    plan.environment = {
        {"LOCAL_RANK", std::to_string(options.virtual_local_rank ? 0 : local_rank)},
        {"RANK", std::to_string(plan.rank)},
        {"GROUP_RANK", std::to_string(meeting.group_rank)},
        {"ROLE_RANK", std::to_string(meeting.base_role_rank + local_rank)},
        {"ROLE_NAME", options.role},
        {"LOCAL_WORLD_SIZE", std::to_string(launch.local_ranks)},
        {"WORLD_SIZE", std::to_string(meeting.global_world_size)},
        {"GROUP_WORLD_SIZE", std::to_string(meeting.group_world_size)},
        {"ROLE_WORLD_SIZE", std::to_string(meeting.role_world_size)},
        {"MASTER_ADDR", meeting.master_addr},
        {"MASTER_PORT", std::to_string(meeting.master_port)},
        {"TORCHELASTIC_RESTART_COUNT", std::to_string(attempt)},
        {"TORCHELASTIC_MAX_RESTARTS", std::to_string(options.max_restarts)},
        {"TORCHELASTIC_RUN_ID", options.run_id},
        {"TORCHELASTIC_USE_AGENT_STORE", meeting.use_agent_store ? "True" : "False"},
        {"TORCHELASTIC_SIGNALS_TO_HANDLE", options.signals_to_handle},
        {"TORCHELASTIC_ERROR_FILE", plan.error_file},
        {kLaunchTimeVariable, std::to_string(launch.launch_time)},
    };
    plan.environment.insert(plan.environment.end(), launch.defaults.begin(), launch.defaults.end());
    plan.environment.insert(plan.environment.end(), options.more_environment.begin(), options.more_environment.end());
    if (!launch.watchdog_file.empty()) plan.environment.emplace_back("TORCHELASTIC_TIMER_FILE", launch.watchdog_file);
    if (!launch.devices.empty()) {
      plan.environment.emplace_back("CUDA_VISIBLE_DEVICES", launch.devices[static_cast<size_t>(local_rank)]);
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace cxxrun
