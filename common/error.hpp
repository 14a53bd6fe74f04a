// Exceptions for "cannot go on". Error carries context, values and the system's reason; UsageError is the user's
// mistake on a command line or in a config and adds what to do about it. Caught in main and at named seams only.
#pragma once

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace cxxrun {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;

  template <class... Args>
  explicit Error(fmt::format_string<Args...> format, Args&&... args)
    requires(sizeof...(Args) > 0)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

// Wrong options or configuration: exit code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// A data set that cannot be used as it is: exit code 5. The message names file, row or frame, and the remedy.
class DataError : public Error {
 public:
  using Error::Error;
};

// The ranks of a job could not find each other: exit code 4.
class RendezvousError : public Error {
 public:
  using Error::Error;
};

// An operating-system call failed. `context` names the call's purpose and its object; errno's text is appended.
inline Error errno_error(const std::string& context, int error_number = errno) {
  return Error("{}: {}", context, std::strerror(error_number));
}

}  // namespace cxxrun
