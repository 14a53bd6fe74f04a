#include <iostream>

#include "worker/commands/command.hpp"
#include "worker/data/inspect/command.hpp"

namespace vla {

int data_command(Arguments arguments) {
  const int exit_code = data::run_data_command(arguments, std::cout);
  std::cout.flush();
  return exit_code;
}

}  // namespace vla
