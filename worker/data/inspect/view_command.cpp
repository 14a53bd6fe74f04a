#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/option_text.hpp"
#include "worker/data/inspect/arguments.hpp"
#include "worker/data/inspect/command.hpp"
#include "worker/data/inspect/view.hpp"

namespace vla::data {
namespace {

constexpr std::string_view kHelp =
    "vla_worker data view DATASET --episode E [--OPTION VALUE…]\n\n"
    "Draws an episode into one SVG file, which every browser shows: pictures of each camera over time, every number of "
    "state and\n"
    "action as a curve, the task's text. Dashed lines in the curves are the frames whose pictures are shown.\n\n"
    "  vla_worker data view ~/data/my_robot --episode 3\n"
    "  vla_worker data view ~/data/my_robot --episode 3 --frames 12 --output wrong_camera.svg\n\n";

struct ViewOptions {
  int64_t episode = 0;
  std::string output;
  int64_t frames = 8;
  double tolerance_s = DatasetSpec{}.tolerance_s;

  void describe(cxxrun::OptionTable& table) {
    table.add("episode", episode, "the episode to draw, by the dataset's own number").at_least(0);
    table.add("output", output, "the file to write; episode_E.svg in the working directory if empty").path();
    table.add("frames", frames, "pictures of each camera").at_least(1).at_most(100);
    table
        .add("tolerance_s", tolerance_s,
             "largest difference in seconds between a row's timestamp and its video frame's")
        .at_least(0);
  }
};

}  // namespace

int view_command(Arguments arguments, std::ostream& out) {
  ViewOptions options;
  cxxrun::OptionTable table;
  options.describe(table);
  const std::string root = parse_dataset_arguments(arguments, table, kHelp, out);
  if (root.empty()) return 0;
  if (table.find("episode")->source.empty())
    throw cxxrun::UsageError("--episode says which episode to draw; it is needed");
  const auto dataset = open_dataset({.root = root, .episodes = {options.episode}, .tolerance_s = options.tolerance_s});
  const std::string path = options.output.empty() ? fmt::format("episode_{}.svg", options.episode) : options.output;
  cxxrun::write_file_atomically(path, draw_episode(*dataset, root, options.frames));
  out << path << '\n';
  return 0;
}

}  // namespace vla::data
