#include <cstdio>

#include "common/error.hpp"
#include "common/log.hpp"
#include "common/registry.hpp"
#include "common/worker_env.hpp"
#include "worker/commands/command.hpp"
#include "worker/commands/failure.hpp"
#include "worker/commands/version.hpp"
#include "worker/start_timing.hpp"

namespace vla {
namespace {

void print_overview() {
  fmt::print("vla_worker trains vision-language-action policies with data parallelism.\n\n");
  for (const Command& command : command_registry()) fmt::print("  vla_worker {} {}\n      {}\n", command.name, command.usage, command.help);
  fmt::print(
      "\nExamples:\n"
      "  vla_worker --config configs/act_demo.yaml                                    one rank\n"
      "  cxxrun --nproc_per_node=2 vla_worker --config configs/act_demo.yaml          two ranks\n"
      "  vla_worker --config configs/act_demo.yaml --world_size 2                     the same, started from here\n"
      "  vla_worker --config configs/act_demo.yaml --dataset.root ~/data/my_robot --training.steps 20000 --optimizer.lr 2e-4\n"
      "  cxxrun --nproc_per_node=4 vla_worker --resume=outputs/20250115_123456/checkpoints/last --training.steps 40000\n"
      "\nExit codes: 0 done, 1 training failed, 2 wrong options, 3 out of memory, 4 no connection between ranks, 5 bad data, 128+N stopped\n"
      "by signal N.\n\n");
}

int dispatch(Arguments arguments) {
  const std::string first = arguments.empty() ? "--help" : arguments.front();
  if (first == "--version") {
    fmt::print("vla_worker {}\n", version());
    return 0;
  }
  if (arguments.empty() || (arguments.size() == 1 && (first == "--help" || first == "-h" || first == "help"))) {
    print_overview();
    const std::vector<std::string> options{"--help"};
    return train_command(options);
  }
  const bool is_option = first.starts_with('-') || first.starts_with('+') || first.find('=') != std::string::npos;
  if (is_option) return train_command(arguments);
  return cxxrun::find_in_registry(command_registry(), first, "command").run(arguments.subspan(1));
}

}  // namespace

int run_vla_worker(Arguments arguments) {
  start_timing().mark("program loaded");
  std::string error_file;
  try {
    error_file = cxxrun::environment_variable("TORCHELASTIC_ERROR_FILE").value_or("");
    report_uncaught_exceptions(error_file);
    return dispatch(arguments);
  } catch (const std::exception& exception) {
    const Failure failure = describe_failure(exception);
    cxxrun::log_error("{}", failure.message);
    write_error_file(error_file, failure.message);
    return failure.exit_code;
  }
}

}  // namespace vla
