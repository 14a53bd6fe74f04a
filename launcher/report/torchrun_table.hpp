// --report-style torchrun: the failure table of torch.distributed.elastic, for whoever parses it. Pure.
#pragma once

#include <string>

#include "launcher/report/job_outcome.hpp"

namespace cxxrun {

// `name`: what torchrun calls the job: the script, or the program. Requires a culprit that has ended.
std::string format_torchrun_table(const JobOutcome& job, const std::string& name, const std::string& host);

}  // namespace cxxrun
