// --dry-run: what each rank would be started with, one shell line a rank, or as JSON. Pure.
#pragma once

#include <string>

#include "launcher/rank_plan.hpp"

namespace cxxrun {

std::string shell_quote(const std::string& text);

// Nodes are taken to run the same number of ranks each; a port that is chosen at start is shown as 0.
std::string describe_launch(const LaunchPlan& plan);
std::string describe_launch_as_json(const LaunchPlan& plan);

}  // namespace cxxrun
