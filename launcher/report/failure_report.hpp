// The last words on stderr: which rank failed first, how, what it said last, what to do about it, and what became of the
// others. Pure: everything comes in as values. At most 20 lines; nothing about the launcher itself.
#pragma once

#include <string>
#include <vector>

#include "launcher/report/job_outcome.hpp"

namespace cxxrun {

std::string format_failure_report(const JobOutcome& job);  // "" when there is nothing to tell

// "ranks 0, 2-5".
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace cxxrun
