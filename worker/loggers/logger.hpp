// Where the numbers of training go. A logger belongs to rank 0's training thread, gets one record per logged step and
// throws Error when it cannot keep it. A new kind of logger is a file pair and a row in registry.cpp. No Torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/gpu_stats.hpp"
#include "worker/loggers/options.hpp"

namespace vla {

// Means over the steps since the last record, where nothing else is said. What is absent or empty is unknown and left out.
struct StepMetrics {
  int64_t step = 0;  // completed steps
  int64_t total_steps = 0;
  double epoch = 0;
  double loss = 0;
  double lr = 0;
  double grad_norm = 0;  // before clipping
  double samples_per_s = 0;  // of all ranks
  double seconds_per_step = 0;
  double data_wait = 0;  // share of the time spent waiting for data, 0 to 1
  // Parts of a step on the slowest rank, in seconds.
  std::optional<double> data_s = {};
  std::optional<double> forward_backward_s = {};
  std::optional<double> forward_s = {};  // of forward_backward_s
  std::optional<double> all_reduce_s = {};  // the part that computing does not hide
  std::optional<double> optimizer_s = {};
  std::optional<int64_t> slowest_rank = {};
  std::optional<double> mfu = {};  // share of the GPUs' peak arithmetic that the model's own uses, 0 to 1
  std::vector<GpuStats> gpus = {};  // one per rank in rank order, or rank 0's alone
  int64_t skipped_rows = 0;  // of the data, since the start, because they could not be read
  std::vector<int64_t> sample_ids = {};  // of this step's global batch, in its order
  std::vector<std::pair<std::string, double>> more = {};  // the policy's own ("l1_loss"), validation ("val_loss"), ...
};

class Logger {
 public:
  virtual ~Logger() = default;
  virtual void log(const StepMetrics& metrics) = 0;
  // After every step. Cheap: no waiting, no device.
  virtual void progress(int64_t /*step*/, int64_t /*total_steps*/) {}
  // Training ended well; one that is destroyed without it has failed.
  virtual void close() {}
};

struct LoggerContext {
  std::filesystem::path output_dir;
  int64_t first_step = 0;  // completed steps of the checkpoint that training continues from; 0 = a new run
  LoggingOptions options = {};
  std::string config_json = {};  // the resolved configuration, a JSON object; "" = none
};

struct LoggerRow {
  const char* name;
  const char* help;
  std::unique_ptr<Logger> (*make)(const LoggerContext& context);
};

const std::vector<LoggerRow>& logger_registry();
std::vector<std::unique_ptr<Logger>> make_loggers(const std::vector<std::string>& names, const LoggerContext& context);

}  // namespace vla
