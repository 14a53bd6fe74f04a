#include <string>
#include <vector>

#include "worker/commands/command.hpp"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return vla::run_vla_worker(arguments);
}
