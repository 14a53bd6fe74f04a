#include <unistd.h>

#include <cstdio>
#include <thread>

#include "common/option_text.hpp"
#include "worker/data/dataset.hpp"
#include "worker/data/inspect/arguments.hpp"
#include "worker/data/inspect/check.hpp"
#include "worker/data/inspect/command.hpp"

namespace vla::data {
namespace {

constexpr int kErrorsFound = 5;  // as for data that stops a training

constexpr std::string_view kHelp =
    "vla_worker data check DATASET [--OPTION VALUE…]\n\n"
    "Finds what would stop a training or spoil it: missing or broken files, frames that cannot be decoded, numbers "
    "that are not\n"
    "finite or never change, timestamps beside the frame rate, frozen cameras and joints, statistics that contradict "
    "the data. Goes\n"
    "on after a broken episode. The exit code is 0 without errors, 5 with errors; warnings do not count.\n\n"
    "  vla_worker data check ~/data/my_robot\n"
    "  vla_worker data check ~/data/my_robot --fast\n"
    "  vla_worker data check ~/data/my_robot --episodes '[0, 7]' --json > report.json\n\n";

struct Options {
  std::vector<int64_t> episodes;
  bool fast = false, json = false;
  double tolerance_s = DatasetSpec{}.tolerance_s;
  int64_t threads = std::max(1U, std::thread::hardware_concurrency());

  void describe(cxxrun::OptionTable& table) {
    table.add("episodes", episodes, "check these only; all if empty");
    table.add("fast", fast, "do not decode pictures");
    table.add("json", json, "print the report as one JSON object");
    table
        .add("tolerance_s", tolerance_s,
             "largest difference in seconds between a timestamp and its place on the grid of the frame rate")
        .at_least(0);
    table.add("threads", threads, "threads that decode; the report does not depend on them").at_least(1).at_most(1024);
  }
};

void show_progress(int64_t done, int64_t all) {
  std::fprintf(stderr, "\r%ld of %ld episodes checked%s", static_cast<long>(done), static_cast<long>(all),
               done == all ? "\n" : "");
  std::fflush(stderr);
}

}  // namespace

int check_command(Arguments arguments, std::ostream& out) {
  Options options;
  cxxrun::OptionTable table;
  options.describe(table);
  const std::string root = parse_dataset_arguments(arguments, table, kHelp, out);
  if (root.empty()) return 0;
  const CheckReport report =
      check_dataset({.root = root,
                     .episodes = options.episodes,
                     .decode = !options.fast,
                     .tolerance_s = options.tolerance_s,
                     .threads = options.threads},
                    isatty(STDERR_FILENO) != 0 ? show_progress : std::function<void(int64_t, int64_t)>());
  if (options.json) {
    out << report.to_json().dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  } else {
    report.print(out);
  }
  return report.count(Severity::kError) > 0 ? kErrorsFound : 0;
}

}  // namespace vla::data
