// Runs `vla_worker data …` in this process.
#pragma once

#include <sstream>

#include "common/error.hpp"
#include "tests/worker/data/support.hpp"
#include "worker/data/inspect/command.hpp"

namespace vla::data {

struct Outcome {
  int exit_code = 0;
  std::string output;
};

inline Outcome run_data(const std::vector<std::string>& arguments) {
  std::ostringstream out;
  const int exit_code = run_data_command(arguments, out);
  return {exit_code, out.str()};
}

inline std::string usage_error(const std::vector<std::string>& arguments) {
  return message_of<cxxrun::UsageError>([&] { run_data(arguments); });
}

}  // namespace vla::data
