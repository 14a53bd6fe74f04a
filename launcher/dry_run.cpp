#include "launcher/dry_run.hpp"

#include <fmt/format.h>

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

std::string describe_launch(const LaunchPlan& plan) {
  const LauncherOptions& options = plan.options;
  const RendezvousResult meeting{
      .group_rank = options.node_rank,
      .group_world_size = options.max_nodes,
      .base_global_rank = options.node_rank * plan.local_ranks,
      .global_world_size = options.max_nodes * plan.local_ranks,
      .base_role_rank = options.node_rank * plan.local_ranks,
      .role_world_size = options.max_nodes * plan.local_ranks,
      .master_addr = options.master_addr,
      .master_port = options.master_port,
      .use_agent_store = options.agent_store,
  };
  std::string text;
  for (const RankPlan& rank : plan_ranks(plan, meeting, 0, "")) {
    text += "env";
    for (const auto& [name, value] : rank.environment) text += fmt::format(" {}={}", name, shell_quote(value));
    text += fmt::format(" {}", shell_quote(plan.program.path));
    for (size_t i = 1; i < rank.argv.size(); ++i) text += fmt::format(" {}", shell_quote(rank.argv[i]));
    text += '\n';
  }
  return text;
}

}  // namespace cxxrun
