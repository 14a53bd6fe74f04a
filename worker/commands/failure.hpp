// What an exception means to the user and to the launcher: a message that names cause, rank, step, samples and a remedy, an exit
// code, and the error file that cxxrun and torchrun quote. Also for exceptions that end in a thread nobody joins, as NCCL's
// watchdog does. Never throws.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "worker/training_context.hpp"

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

Failure describe_failure(const std::exception& exception, const TrainingPosition& position = training_context().position());

// The ranks that a collective waited for, where the message of its time-out says so (NCCL's desync report does).
std::vector<int64_t> late_ranks(const std::string& message);

// Writes {"message": {"message": …, "extraInfo": {"timestamp": …, "training": {"rank": …, "step": …}}}} where the launcher looks for it.
void write_error_file(const std::string& path, const std::string& message,
                      const TrainingPosition& position = training_context().position());

// From now on an exception that no thread catches is reported like those of the main thread, and ends the process with its exit code.
void report_uncaught_exceptions(const std::string& error_file);

}  // namespace vla
