#include "worker/commands/failure.hpp"

#include <ctime>

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"

namespace vla {
namespace {

constexpr char kOutOfMemoryRemedy[] =
    "; use a smaller --training.batch_size (with --training.gradient_accumulation_steps the effective batch stays the same), fewer "
    "--training.num_workers, or more GPUs";

}  // namespace

Failure describe_failure(const std::exception& exception) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&exception);
  Failure failure{kTrainingFailed, torch_error ? torch_error->what_without_backtrace() : exception.what()};
  if (dynamic_cast<const cxxrun::UsageError*>(&exception)) {
    failure.exit_code = kUsage;
  } else if (dynamic_cast<const cxxrun::DataError*>(&exception)) {
    failure.exit_code = kBadData;
  } else if (dynamic_cast<const cxxrun::RendezvousError*>(&exception)) {
    failure.exit_code = kRendezvousFailed;
  } else if (dynamic_cast<const c10::OutOfMemoryError*>(&exception) || dynamic_cast<const std::bad_alloc*>(&exception)) {
    failure.exit_code = kOutOfMemory;
    failure.message = "out of memory: " + failure.message + kOutOfMemoryRemedy;
  }
  return failure;
}

void write_error_file(const std::string& path, const std::string& message) {
  if (path.empty()) return;
  const nlohmann::json json = {{"message", {{"message", message}, {"extraInfo", {{"timestamp", std::to_string(std::time(nullptr))}}}}}};
  try {
    cxxrun::write_file_atomically(path, json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } catch (const std::exception&) {
    // The message is on stderr already; there is nowhere else to put it.
  }
}

}  // namespace vla
