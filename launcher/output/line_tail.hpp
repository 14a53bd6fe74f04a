// The end of a stream: its last lines, for the failure report. Bounded memory. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cxxrun {

class LineTail {
 public:
  void add(std::string_view bytes);
  // Instead of what was added: the end of a file that somebody else writes; nothing if it cannot be read.
  void read_file(const std::string& path);
  // Without blank ones; of a progress bar, its last state.
  std::vector<std::string> lines(size_t count) const;

 private:
  std::string bytes_;
};

}  // namespace cxxrun
