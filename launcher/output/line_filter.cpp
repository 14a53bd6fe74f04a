#include "launcher/output/line_filter.hpp"

#include <algorithm>

namespace cxxrun {
namespace {

constexpr size_t kLongestLine = 1 << 20;  // a longer one is examined in pieces

}  // namespace

void LineFilter::add(std::string_view bytes) {
  for (size_t end = bytes.find('\n'); end != bytes.npos; end = bytes.find('\n')) {
    const std::string_view line = bytes.substr(0, end + 1);
    if (held_.empty()) {
      examine(line);
    } else {
      held_ += line;
      finish();
    }
    bytes.remove_prefix(end + 1);
  }
  held_ += bytes;
  if (held_.size() > kLongestLine) finish();
}

void LineFilter::finish() {
  if (!held_.empty()) examine(held_);
  held_.clear();
}

void LineFilter::examine(std::string_view line) {
  const auto in_line = [&](const std::string& text) { return line.find(text) != line.npos; };
  if (std::none_of(texts_.begin(), texts_.end(), in_line)) return;
  target_.write(prefix_ + std::string(line) + (line.ends_with('\n') ? "" : "\n"));
}

}  // namespace cxxrun
