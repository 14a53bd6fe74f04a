#include "launcher/options/output_options.hpp"

#include <algorithm>
#include <charconv>

#include "common/error.hpp"
#include "launcher/options/option_readers.hpp"
#include "launcher/options/option_values.hpp"

namespace cxxrun {
namespace {

std::optional<int> digits(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || text[0] == '-' || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

bool StdMap::any() const {
  return fallback != 0 || std::any_of(of_rank.begin(), of_rank.end(), [](const auto& entry) { return entry.second; });
}

StdMap parse_std_map(const std::string& text, const std::string& source) {
  StdMap map;
  const auto is_streams = [](const std::optional<int>& value) { return value && *value <= 3; };
  if (const auto all = digits(text); is_streams(all)) {
    map.fallback = *all;
    return map;
  }
  for (size_t start = 0; start <= text.size();) {
    const size_t comma = std::min(text.find(',', start), text.size());
    const std::string_view pair = std::string_view(text).substr(start, comma - start);
    const size_t colon = pair.find(':');
    const auto rank = digits(pair.substr(0, colon));
    const auto streams = colon == pair.npos ? std::nullopt : digits(pair.substr(colon + 1));
    if (!rank || !is_streams(streams)) {
      throw UsageError(
          "{}='{}' must be 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or name local ranks: 0:3,1:2", source, text);
    }
    map.of_rank[*rank] = *streams;
    start = comma + 1;
  }
  return map;
}

void read_output_options(LauncherOptions& options, const boost::program_options::variables_map& values,
                         const Environment& environment) {
  const auto text = [&](const char* name) { return values.count(name) ? values[name].as<std::string>() : ""; };
  OutputOptions& output = options.output;
  output.redirects = parse_std_map(text("redirects"), "--redirects");
  output.tee = parse_std_map(text("tee"), "--tee");
  output.log_dir = text("log-dir");
  const std::string prefix = text("prefix");
  output.prefix = prefix == "always" ? PrefixMode::kAlways : prefix == "never" ? PrefixMode::kNever : PrefixMode::kAuto;
  output.line_prefix_template = text("log-line-prefix-template");
  if (output.line_prefix_template.empty()) {
    output.line_prefix_template = environment("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE").value_or("");
  }
  if (const std::string ranks = text("local-ranks-filter"); !ranks.empty()) {
    output.shown_ranks.emplace();
    for (const std::string& item : split_list(ranks)) {
      const auto rank = parse_python_int(item);
      if (!rank) throw UsageError("--local-ranks-filter={} must be local ranks, for example 0,1,2", ranks);
      output.shown_ranks->insert(*rank);
    }
  }
  for (auto [name, filters] : {std::pair{"duplicate-stdout-filters", &output.duplicate_stdout_filters},
                               std::pair{"duplicate-stderr-filters", &output.duplicate_stderr_filters}}) {
    if (const std::string list = text(name); !list.empty()) *filters = split_list(list);
  }
}

}  // namespace cxxrun
