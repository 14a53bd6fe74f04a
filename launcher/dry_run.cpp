#include "launcher/dry_run.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/worker_env.hpp"

namespace cxxrun {

std::string shell_quote(const std::string& text) {
  static constexpr char kPlain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == text.npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  quoted += '\'';
  return quoted;
}

namespace {

std::vector<RankPlan> example_ranks(const LaunchPlan& plan) {
  const LauncherOptions& options = plan.options;
  const int first = options.node_rank * plan.local_ranks, world = options.max_nodes * plan.local_ranks;
  const RendezvousResult meeting{
      .group_rank = options.node_rank,
      .group_world_size = options.max_nodes,
      .base_global_rank = first,
      .global_world_size = world,
      .base_role_rank = first,
      .role_world_size = world,
      .master_addr = options.master_addr,
      .master_port = options.master_port,
      .use_agent_store = options.agent_store,
  };
  return plan_ranks(plan, meeting, 0, "");
}

}  // namespace

std::string describe_launch(const LaunchPlan& plan) {
  std::string text;
  if (plan.options.master_port == 0) text += "# MASTER_PORT=0: a free port is chosen at the start\n";
  for (const RankPlan& rank : example_ranks(plan)) {
    text += "env";
    for (const auto& [name, value] : rank.environment) text += fmt::format(" {}={}", name, shell_quote(value));
    text += fmt::format(" {}", shell_quote(plan.program.path));
    for (size_t i = 1; i < rank.argv.size(); ++i) text += fmt::format(" {}", shell_quote(rank.argv[i]));
    text += '\n';
  }
  return text;
}

std::string describe_launch_as_json(const LaunchPlan& plan) {
  using nlohmann::json;
  json ranks = json::array();
  for (const RankPlan& rank : example_ranks(plan)) {
    json environment = json::object();
    for (const auto& [name, value] : rank.environment) environment[name] = value;
    ranks.push_back({{"rank", rank.rank},
                     {"local_rank", rank.local_rank},
                     {"executable", plan.program.path},
                     {"argv", rank.argv},
                     {"environment", environment},
                     {"cpus", rank.placement.cpus}});
  }
  // Arguments may hold any bytes; JSON may not.
  return json{{"ranks", ranks}}.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace cxxrun
