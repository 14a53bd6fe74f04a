#include <charconv>
#include <optional>

#include <fmt/ranges.h>

#include "common/error.hpp"
#include "common/option_text.hpp"
#include "worker/data/inspect/arguments.hpp"
#include "worker/data/inspect/command.hpp"
#include "worker/data/inspect/sample_json.hpp"

namespace vla::data {
namespace {

constexpr std::string_view kHelp =
    "vla_worker data sample DATASET --episode E --frame F [--frame F…] [--episode E --frame F…] [--OPTION VALUE…]\n\n"
    "Prints what a policy is fed at these frames, before normalisation, in the order given: numbers, the task's text, "
    "pixels. All\n"
    "are read through one reader, as in a training. Episodes have the dataset's own numbers.\n\n"
    "  vla_worker data sample ~/data/my_robot --episode 0 --frame 10\n"
    "  vla_worker data sample ~/data/my_robot --episode 3 --frame 0 --frame 40 --episode 1 --frame 7 --chunk 8 --json\n"
    "  vla_worker data sample ~/data/my_robot --episode 0 --frame 0 --pixels '10,20;64,64' --json\n\n";

struct SampleOptions {
  int64_t episode = 0, frame = 0;
  int64_t chunk = 1;
  std::string pixels;
  bool json = false;
  double tolerance_s = DatasetSpec{}.tolerance_s;

  void describe(cxxrun::OptionTable& table) {
    table.add("episode", episode, "episode of the frames that follow; can be given again");
    table.add("frame", frame, "frame in the episode; can be given again");
    table.add("chunk", chunk, "actions from the frame on; the last one is repeated and marked as padding")
        .at_least(1)
        .at_most(1 << 16);
    table.add("pixels", pixels, "show these pixels of every camera, written 'Y,X;Y,X'");
    table.add("json", json, "one JSON object a line");
    table.add("tolerance_s", tolerance_s, "largest difference between a row's timestamp and its video frame's")
        .at_least(0)
        .in("s");
  }
};

std::vector<Pixel> parse_pixels(const std::string& text) {
  std::vector<Pixel> pixels;
  const char *at = text.data(), *end = at + text.size();
  const auto next = [&](char before_end) {
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(at, end, value);
    if (error != std::errc() || (stop == end ? before_end != ';' : *stop != before_end))
      throw cxxrun::UsageError("--pixels '{}': expected rows and columns as 'Y,X;Y,X'", text);
    at = stop == end ? end : stop + 1;
    return value;
  };
  while (at != end) {
    const int64_t y = next(','), x = next(';');
    pixels.push_back({y, x});
  }
  return pixels;
}

struct Place {
  int64_t episode, frame;
};

// Every --frame belongs to the --episode before it; a single pair may stand the other way round.
std::vector<Place> apply_places(const VerbArguments& arguments, SampleOptions& options, cxxrun::OptionTable& table) {
  std::vector<Place> places;
  std::optional<int64_t> episode, early_frame;
  bool is_used = true;
  for (const cxxrun::Setting& setting : arguments.settings) {
    cxxrun::apply_setting(table, setting);
    if (setting.name == "episode") {
      if (!is_used) throw cxxrun::UsageError("--episode {} has no --frame", *episode);
      episode = options.episode;
      is_used = early_frame.has_value();
      if (early_frame) places.push_back({*episode, *early_frame});
      early_frame.reset();
    } else if (setting.name == "frame") {
      if (episode) {
        places.push_back({*episode, options.frame});
        is_used = true;
      } else {
        if (early_frame) throw cxxrun::UsageError("--frame {} has no --episode before it", *early_frame);
        early_frame = options.frame;
      }
    }
  }
  if (places.empty() || !is_used)
    throw cxxrun::UsageError("--episode and --frame say which sample to show; both are needed");
  return places;
}

void print_text(const nlohmann::ordered_json& sample, std::ostream& out) {
  for (const auto& [key, value] : sample.items()) {
    if (key != "images")
      out << fmt::format("{:<28} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  for (const auto& [key, picture] : sample["images"].items()) {
    out << fmt::format("{:<28} {}x{} (height x width){}{}\n", key, picture["height"].dump(), picture["width"].dump(),
                       picture["rgb"].empty() ? "" : ", pixels ", picture["rgb"].empty() ? "" : picture["rgb"].dump());
  }
  out << '\n';
}

}  // namespace

int sample_command(Arguments arguments, std::ostream& out) {
  SampleOptions options;
  cxxrun::OptionTable table;
  options.describe(table);
  const VerbArguments split = split_arguments(arguments, table);
  if (split.wants_help) {
    out << kHelp << cxxrun::help_text(table);
    return 0;
  }
  const std::vector<Place> places = apply_places(split, options, table);
  const auto dataset = open_dataset({.root = only_dataset(split), .episodes = {}, .tolerance_s = options.tolerance_s});
  SamplePrinter printer(dataset, options.chunk, parse_pixels(options.pixels));
  for (const auto& [episode, frame] : places) {
    const nlohmann::ordered_json sample = printer.read(episode, frame);
    if (options.json) {
      out << sample.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
    } else {
      print_text(sample, out);
    }
  }
  return 0;
}

}  // namespace vla::data
