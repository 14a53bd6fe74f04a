#include "worker/commands/failure.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string_view>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/log.hpp"

namespace vla {
namespace {

bool contains(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

// Only some allocators throw a type of their own.
bool is_out_of_memory(const std::exception& exception, const std::string& message) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&exception) || dynamic_cast<const std::bad_alloc*>(&exception) ||
         contains(message, "DefaultCPUAllocator") || contains(message, "out of memory") || contains(message, "CUBLAS_STATUS_ALLOC_FAILED");
}

std::string memory_remedy(const TrainingSizes& sizes) {
  std::string remedy = "use a smaller --training.batch_size (with --training.gradient_accumulation_steps the effective batch stays the same)";
  if (sizes.per_gpu > 1 && sizes.batch_size % 2 == 0) {
    remedy = fmt::format("--training.batch_size={} --training.gradient_accumulation_steps={} trains on the same {} samples per step with less memory",
                         sizes.batch_size / 2, 2 * sizes.accumulation, sizes.effective);
  } else if (sizes.per_gpu == 1) {
    remedy = "a rank has a single sample at a time already: choose a smaller policy, smaller images or fewer trained parameters";
  }
  return remedy + "; fewer --training.num_workers save main memory; nvidia-smi shows who else uses the GPU, CUDA_VISIBLE_DEVICES chooses another";
}

std::string describe_out_of_memory(const std::string& message, const TrainingSizes& sizes) {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  std::string text = fmt::format("out of memory: {}; in force: ", message);
  if (const std::string known = describe(sizes); !known.empty()) text += known + ", ";
  return text + fmt::format("main memory used by this rank up to {:.1f} GiB; remedy: {}", static_cast<double>(usage.ru_maxrss) / (1 << 20),
                            memory_remedy(sizes));
}

nlohmann::json as_json(const TrainingPosition& position) {
  const TrainingSizes& sizes = position.sizes;
  return {{"rank", position.rank},
          {"step", position.step},
          {"phase", position.phase},
          {"samples", position.samples},
          {"sizes",
           {{"batch_size", sizes.batch_size},
            {"per_gpu", sizes.per_gpu},
            {"gradient_accumulation_steps", sizes.accumulation},
            {"effective", sizes.effective},
            {"world_size", sizes.world_size},
            {"num_workers", sizes.num_workers},
            {"precision", sizes.precision},
            {"device", sizes.device}}}};
}

std::string& error_file_of_threads() {
  static std::string path;
  return path;
}

// Others that fail while the first is reported wait here; there is nothing to go back to.
[[noreturn]] void report_and_exit() {
  static std::mutex one_report;
  one_report.lock();
  Failure failure{128 + SIGABRT, "terminated without an exception"};
  try {
    if (const auto exception = std::current_exception()) std::rethrow_exception(exception);
  } catch (const std::exception& exception) {
    failure = describe_failure(exception);
  } catch (...) {
    failure = {kTrainingFailed, "an exception of an unknown type"};
  }
  cxxrun::log_error("{}", failure.message);
  write_error_file(error_file_of_threads(), failure.message);
  std::_Exit(failure.exit_code);
}

}  // namespace

Failure describe_failure(const std::exception& exception, const TrainingPosition& position) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&exception);
  Failure failure{kTrainingFailed, torch_error ? torch_error->what_without_backtrace() : exception.what()};
  if (dynamic_cast<const cxxrun::UsageError*>(&exception)) return {kUsage, failure.message};
  if (dynamic_cast<const cxxrun::DataError*>(&exception)) {
    failure.exit_code = kBadData;
  } else if (dynamic_cast<const cxxrun::RendezvousError*>(&exception)) {
    failure.exit_code = kRendezvousFailed;
  } else if (is_out_of_memory(exception, failure.message)) {
    failure = {kOutOfMemory, describe_out_of_memory(failure.message, position.sizes)};
  } else if (const auto late = late_ranks(failure.message); !late.empty()) {
    failure.message = fmt::format("waited for rank {}: {}", fmt::join(late, ", "), failure.message);
  }
  if (const std::string where = describe(position); !where.empty()) failure.message += fmt::format(" [{}]", where);
  return failure;
}

std::vector<int64_t> late_ranks(const std::string& message) {
  // c10d/TraceUtils.h: analyzeMissingRanks() and analyzeLaggingRanks(). The list stands in the first bracket behind these words.
  size_t begin = message.find("ranks [");
  if (begin == message.npos) begin = message.find("ranks that caused the desync are:");
  if (begin != message.npos) begin = message.find('[', begin);
  if (begin == message.npos) return {};
  std::vector<int64_t> ranks;
  int64_t number = -1;
  for (const char c : message.substr(begin + 1, 4000)) {
    if (c >= '0' && c <= '9') {
      number = std::max<int64_t>(number, 0) * 10 % 1'000'000'000 + (c - '0');
    } else {
      if (number >= 0) ranks.push_back(std::exchange(number, -1));
      if (c != ',' && c != ' ') break;
    }
  }
  return ranks;
}

void write_error_file(const std::string& path, const std::string& message, const TrainingPosition& position) {
  if (path.empty()) return;
  nlohmann::json extra = {{"timestamp", std::to_string(std::time(nullptr))}};
  if (!describe(position).empty()) extra["training"] = as_json(position);
  const nlohmann::json json = {{"message", {{"message", message}, {"extraInfo", extra}}}};
  try {
    cxxrun::write_file_atomically(path, json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } catch (const std::exception&) {
    // The message is on stderr already; there is nowhere else to put it.
  }
}

void report_uncaught_exceptions(const std::string& error_file) {
  error_file_of_threads() = error_file;
  std::set_terminate(&report_and_exit);
}

}  // namespace vla
