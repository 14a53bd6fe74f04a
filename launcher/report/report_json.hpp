// --report-file: how the job ended, for programs. One JSON object; keys are added, never changed, within a schema_version.
#pragma once

#include <string>

#include "launcher/rank_plan.hpp"
#include "launcher/report/job_outcome.hpp"

namespace cxxrun {

std::string format_report_json(const JobOutcome& job, const LaunchPlan& plan, RankOutcome::WallTime ended_at);

}  // namespace cxxrun
