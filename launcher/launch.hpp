// cxxrun from its arguments to its exit code. main() and nothing else calls it; everything else is reached from here.
#pragma once

#include <string>
#include <vector>

namespace cxxrun {

int run_cxxrun(const std::vector<std::string>& args, const std::string& called_as);

}  // namespace cxxrun
