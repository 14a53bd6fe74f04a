// Where the ranks' output goes: torchrun's --redirects, --tee, filters and templates, and our own --prefix. Values only;
// output_router acts on them. parse_std_map throws UsageError.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace cxxrun {

// "3", or "0:1,12:3": which streams (0 none, 1 stdout, 2 stderr, 3 both), for all local ranks or for each one named.
struct StdMap {
  int fallback = 0;
  std::map<int, int> of_rank = {};

  int of(int local_rank) const {
    const auto named = of_rank.find(local_rank);
    return named == of_rank.end() ? fallback : named->second;
  }
  bool any() const;
};
StdMap parse_std_map(const std::string& text, const std::string& source);

enum class PrefixMode { kAuto, kAlways, kNever };  // auto: on a terminal, when more than one rank writes

struct OutputOptions {
  StdMap redirects = {};  // to files only
  StdMap tee = {};  // to files and to the console
  PrefixMode prefix = PrefixMode::kAuto;
  std::string line_prefix_template = "";  // "" = "[${role_name}${local_rank}]:" where teed, else "[rank${rank}] "
  std::optional<std::set<int>> shown_ranks = {};  // local ranks that may write to the console; absent = all
  std::vector<std::string> duplicate_stdout_filters = {};  // lines with one of these also go to filtered_stdout.log
  std::vector<std::string> duplicate_stderr_filters = {};
  std::string log_dir = "";  // "" = a temporary folder; "/dev/null" = no files at all
};

}  // namespace cxxrun
