// What the user asked cxxrun for: command line over PET_* variables over defaults, checked and typed. Knows torchrun's
// rules for ports and end points; does not look at devices, programs or the network. Throws UsageError.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace cxxrun {

struct LauncherOptions {
  bool help = false;
  bool version = false;
  bool dry_run = false;

  std::string nproc_per_node = "1";
  int min_nodes = 1;
  int max_nodes = 1;
  int node_rank = 0;

  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0 = any free one
  bool port_is_hard = false;  // the user named it: it is this one or none
  std::string run_id = "none";
  std::string role = "default";
  bool agent_store = true;

  int max_restarts = 0;
  std::chrono::milliseconds shutdown_timeout{30'000};
  bool torchrun_exit_codes = false;

  bool no_python = false;
  bool module = false;
  std::string program;
  std::vector<std::string> program_args;
};

using Environment = std::function<std::optional<std::string>(const std::string&)>;

LauncherOptions parse_options(const std::vector<std::string>& args, const Environment& environment);

std::string help_text();

// Python's int(): blanks around and single underscores between digits are allowed.
std::optional<int> parse_python_int(const std::string& text);

}  // namespace cxxrun
