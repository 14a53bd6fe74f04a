#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "common/error.hpp"
#include "common/option_text.hpp"
#include "worker/data/inspect/arguments.hpp"
#include "worker/data/inspect/command.hpp"
#include "worker/data/zarr/robotwin.hpp"

namespace vla::data {
namespace {

constexpr std::string_view kHelp =
    "vla_worker data convert RECORDINGS OUTPUT [--OPTION VALUE…]\n\n"
    "Makes a zarr replay buffer of RoboTwin's recordings (episode0.hdf5, episode1.hdf5, … in data/TASK/SETTING/data), "
    "with the values\n"
    "of RoboTwin's own process_data.py: joints as state and, one step later, as action; the pictures of one camera. An "
    "existing OUTPUT\n"
    "is replaced only with --overwrite, and only once the conversion has succeeded.\n\n"
    "  vla_worker data convert data/beat_block_hammer/demo_clean/data beat_block_hammer-demo_clean-50.zarr\n"
    "  vla_worker data convert data/beat_block_hammer/demo_clean/data hammer.zarr --episodes 20 --overwrite\n"
    "  vla_worker data convert data/beat_block_hammer/demo_clean/data left.zarr --camera left_camera\n\n";

void show_progress(int64_t done, int64_t all) {
  std::fprintf(stderr, "\r%ld of %ld episodes converted%s", static_cast<long>(done), static_cast<long>(all),
               done == all ? "\n" : "");
  std::fflush(stderr);
}

}  // namespace

int convert_command(Arguments arguments, std::ostream& out) {
  RobotwinOptions options;
  cxxrun::OptionTable table;
  options.describe(table);
  const VerbArguments split = split_arguments(arguments, table);
  if (split.wants_help) {
    out << kHelp << cxxrun::help_text(table);
    return 0;
  }
  for (const cxxrun::Setting& setting : split.settings) cxxrun::apply_setting(table, setting);
  if (split.positionals.size() != 2) {
    throw cxxrun::UsageError("convert needs the folder of the recordings and the folder to make, got {} arguments",
                             split.positionals.size());
  }
  const auto begin = std::chrono::steady_clock::now();
  const RobotwinResult result =
      convert_robotwin(split.positionals[0], split.positionals[1], options,
                       isatty(STDERR_FILENO) != 0 ? show_progress : std::function<void(int64_t, int64_t)>());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  out << fmt::format("{}: {} episodes, {} frames; state and action of {} numbers, {} of 3x{}x{}; {:.1f} episodes/s\n",
                     split.positionals[1], result.episodes, result.frames, result.width, options.camera,
                     result.picture_height, result.picture_width,
                     static_cast<double>(result.episodes) / seconds.count());
  return 0;
}

}  // namespace vla::data
