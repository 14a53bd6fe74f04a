// Copies the lines of one stream that contain one of some texts to a file that all ranks share, with the rank's prefix.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/output/log_file.hpp"

namespace cxxrun {

class LineFilter {
 public:
  LineFilter(LogFile& target, const std::vector<std::string>& texts, std::string prefix)
      : target_(target), texts_(texts), prefix_(std::move(prefix)) {}

  void add(std::string_view bytes);
  void finish();  // the stream has ended, perhaps within a line

 private:
  void examine(std::string_view line);

  LogFile& target_;
  const std::vector<std::string>& texts_;
  std::string prefix_;
  std::string held_;  // the start of a line
};

}  // namespace cxxrun
