// What the user asked cxxrun for: command line over PET_* variables over defaults, checked and typed. Knows torchrun's
// rules for ports and end points; does not look at devices, programs or the network. Throws UsageError.
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/options/output_options.hpp"

namespace cxxrun {

enum class NumaBinding { kNone, kNode, kSocket, kExclusive, kCoreComplex, kAuto };
std::string_view name_of(NumaBinding binding);  // as --numa-binding says it; "" for kNone
enum class ReportStyle { kCxxrun, kTorchrun };

struct LauncherOptions {
  bool help = false;
  bool version = false;
  std::string completion = "";  // print the completion script of this shell
  bool dry_run = false;
  bool json = false;

  std::string nproc_per_node = "1";
  NumaBinding numa_binding = NumaBinding::kNone;
  bool virtual_local_rank = false;  // every rank sees its own GPU only, as device 0
  int min_nodes = 1;
  int max_nodes = 1;
  int node_rank = 0;

  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0 = any free one
  bool port_is_hard = false;  // the user named it: it is this one or none
  std::string rdzv_backend = "static";
  std::string local_addr = "";  // c10d: how other nodes reach this one
  std::map<std::string, std::string> rdzv_conf = {};
  std::string run_id = "none";
  std::string role = "default";
  bool agent_store = true;

  int max_restarts = 0;
  std::chrono::milliseconds shutdown_timeout{30'000};
  std::optional<std::chrono::milliseconds> hang_timeout = {};  // without a beat, for ranks that have beaten before
  std::set<int> stop_signals = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};  // end the job; all others pass on to the ranks
  std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";  // as written
  bool torchrun_exit_codes = false;
  ReportStyle report_style = ReportStyle::kCxxrun;
  std::string report_file = "";
  std::string event_log_handler = "null";  // or console

  OutputOptions output = {};

  bool no_python = false;
  bool module = false;
  bool run_path = false;  // Python's runpy.run_path
  bool launch_compat = false;  // --local-rank=N before the program's arguments, as torch.distributed.launch does
  std::vector<std::pair<std::string, std::string>> more_environment = {};  // of ranks, from accelerate's options
  std::vector<std::string> warnings = {};  // to be said before the start
  std::string program;
  std::vector<std::string> program_args;
};

using Environment = std::function<std::optional<std::string>(const std::string&)>;

// `called_as`: the name that cxxrun was started by; as "cxxlaunch" it behaves as torch.distributed.launch.
LauncherOptions parse_options(const std::vector<std::string>& args, const Environment& environment,
                              const std::string& called_as = "cxxrun");

// Python's int(): blanks around and single underscores between digits are allowed.
std::optional<int> parse_python_int(const std::string& text);

}  // namespace cxxrun
