#include <fmt/ranges.h>

#include "common/error.hpp"
#include "common/option_text.hpp"
#include "worker/data/inspect/arguments.hpp"
#include "worker/data/inspect/command.hpp"
#include "worker/data/zarr/merge.hpp"

namespace vla::data {
namespace {

constexpr std::string_view kHelp =
    "vla_worker data merge INPUT… --output DIR [--action-width N]\n\n"
    "Appends the episodes of zarr replay buffers into a new one, in the order given. Inputs are not changed, an "
    "existing folder is\n"
    "not overwritten.\n\n"
    "  vla_worker data merge beat_hammer.zarr stack_bowls.zarr --output both.zarr\n"
    "  vla_worker data merge one_arm.zarr two_arms.zarr --output both.zarr --action-width 14\n\n";

struct Options {
  std::string output;
  MergeOptions merge;

  void describe(cxxrun::OptionTable& table) {
    table.add("output", output, "the folder to make").path();
    table
        .add("action_width", merge.action_width,
             "columns of state and action in the result: the last ones of wider inputs, zeros after narrower ones; 0: "
             "all inputs "
             "must have as many")
        .at_least(0);
  }
};

}  // namespace

int merge_command(Arguments arguments, std::ostream& out) {
  Options options;
  cxxrun::OptionTable table;
  options.describe(table);
  const VerbArguments split = split_arguments(arguments, table);
  if (split.wants_help) {
    out << kHelp << cxxrun::help_text(table);
    return 0;
  }
  for (const cxxrun::Setting& setting : split.settings) cxxrun::apply_setting(table, setting);
  if (split.positionals.empty()) throw cxxrun::UsageError("merge needs the replay buffers to append");
  if (options.output.empty()) throw cxxrun::UsageError("--output names the folder to make; it is needed");
  const MergeResult result = merge_zarr(split.positionals, options.output, options.merge);
  out << fmt::format("{}: {} episodes, {} frames; arrays {}\n", options.output, result.episodes, result.frames,
                     fmt::join(result.arrays, ", "));
  return 0;
}

}  // namespace vla::data
