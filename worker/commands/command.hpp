// The commands of vla_worker: one function each, one row each in registry.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace vla {

using Arguments = std::span<const std::string>;

struct Command {
  const char* name;
  const char* usage;  // its arguments
  const char* help;
  int (*run)(Arguments arguments);  // returns the exit code; failures are exceptions
};

const std::vector<Command>& command_registry();

int train_command(Arguments arguments);
int eval_command(Arguments arguments);
int serve_command(Arguments arguments);
int bench_command(Arguments arguments);
int info_command(Arguments arguments);
int data_command(Arguments arguments);

// vla_worker from its arguments to its exit code.
int run_vla_worker(Arguments arguments);

}  // namespace vla
