// --report-file: how the job ended, for programs. One JSON object; keys are added, never changed, within a schema_version.
#pragma once

#include <string>

#include "launcher/job_outcome.hpp"
#include "launcher/rank_plan.hpp"

namespace cxxrun {

std::string format_report_json(const JobOutcome& job, const LaunchPlan& plan, RankOutcome::WallTime ended_at);

}  // namespace cxxrun
