// A file that a stream of a rank is written to, byte for byte. Emptied when opened. A file that cannot be written is said once
// and given up: the rank goes on.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "common/unique_fd.hpp"

namespace cxxrun {

using Complain = std::function<void(const std::string&)>;

class LogFile {
 public:
  LogFile(std::string path, Complain complain);
  void write(std::string_view bytes);
  // For a child that writes by itself; none if the file could not be opened.
  UniqueFd release() { return std::move(fd_); }

 private:
  void give_up(int error_number);

  std::string path_;
  Complain complain_;
  UniqueFd fd_;
};

}  // namespace cxxrun
