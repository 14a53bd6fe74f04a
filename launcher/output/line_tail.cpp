#include "launcher/output/line_tail.hpp"

#include <algorithm>
#include <fstream>

namespace cxxrun {
namespace {

constexpr size_t kTailBytes = 1 << 14;

}  // namespace

void LineTail::add(std::string_view bytes) {
  if (bytes.size() >= kTailBytes) {
    bytes_.assign(bytes.substr(bytes.size() - kTailBytes));
    return;
  }
  bytes_ += bytes;
  if (bytes_.size() > 2 * kTailBytes) bytes_.erase(0, bytes_.size() - kTailBytes);
}

void LineTail::read_file(const std::string& path) {
  bytes_.clear();
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : 0;
  if (size <= 0) return;
  bytes_.resize(std::min(static_cast<size_t>(size), kTailBytes));
  file.seekg(size - static_cast<std::streamoff>(bytes_.size()));
  file.read(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
  bytes_.resize(static_cast<size_t>(file.gcount()));
}

std::vector<std::string> LineTail::lines(size_t count) const {
  std::vector<std::string> lines;
  std::string_view rest = bytes_;
  while (!rest.empty() && lines.size() < count) {
    const size_t newline = rest.rfind('\n');
    std::string_view line = newline == rest.npos ? rest : rest.substr(newline + 1);
    rest = newline == rest.npos ? std::string_view() : rest.substr(0, newline);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (const size_t redraw = line.rfind('\r'); redraw != line.npos) line.remove_prefix(redraw + 1);
    if (!line.empty()) lines.emplace_back(line);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace cxxrun
