#include "worker/data/inspect/command.hpp"

#include "common/registry.hpp"

namespace vla::data {
namespace {

struct Verb {
  std::string_view name, usage, help;
  int (*run)(Arguments arguments, std::ostream& out);
};

constexpr Verb kVerbs[] = {
    {"sample", "DATASET --episode E --frame F", "print what a policy is fed at a frame, before normalisation",
     &sample_command},
    {"check", "DATASET", "find what would stop a training or spoil it", &check_command},
    {"view", "DATASET --episode E", "draw an episode: cameras, state and action curves, task", &view_command},
    {"merge", "INPUT... --output DIR", "append zarr replay buffers into a new one", &merge_command},
    {"convert", "RECORDINGS OUTPUT", "make a zarr replay buffer of RoboTwin's HDF5 recordings", &convert_command},
};

void print_overview(std::ostream& out) {
  out << "vla_worker data VERB looks at a dataset of any format that can be trained on.\n\n";
  for (const Verb& verb : kVerbs)
    out << fmt::format("  vla_worker data {} {}\n      {}\n", verb.name, verb.usage, verb.help);
  out << "\nOptions and examples: vla_worker data VERB --help\n";
}

}  // namespace

int run_data_command(Arguments arguments, std::ostream& out) {
  const std::string first = arguments.empty() ? "" : arguments.front();
  if (first == "--help" || first == "-h" || first == "help") {
    print_overview(out);
    return 0;
  }
  if (first.empty()) {
    print_overview(out);
    throw cxxrun::UsageError("data needs a verb, the first of its arguments");
  }
  return cxxrun::find_in_registry(kVerbs, first, "data verb").run(arguments.subspan(1), out);
}

}  // namespace vla::data
