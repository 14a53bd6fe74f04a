// What an exception means to the user and to the launcher: a message with a remedy, an exit code, and the error file that cxxrun
// and torchrun quote.
#pragma once

#include <exception>
#include <string>

namespace vla {

enum ExitCode : int {
  kTrainingFailed = 1,
  kUsage = 2,
  kOutOfMemory = 3,
  kRendezvousFailed = 4,
  kBadData = 5,
};

struct Failure {
  int exit_code = kTrainingFailed;
  std::string message;
};

Failure describe_failure(const std::exception& exception);

// Writes {"message": {"message": …, "extraInfo": {"timestamp": …}}} where the launcher looks for it. Never throws.
void write_error_file(const std::string& path, const std::string& message);

}  // namespace vla
