// Where the numbers of training go. A logger belongs to rank 0's training thread, gets one record per logged step and
// throws Error when it cannot keep it. A new kind of logger is a file pair and a row in registry.cpp. No Torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace vla {

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
  std::vector<std::pair<std::string, double>> more;  // the policy's own ("l1_loss"), validation ("val_loss"), ...
};

class Logger {
 public:
  virtual ~Logger() = default;
  virtual void log(const StepMetrics& metrics) = 0;
  virtual void close() {}
};

struct LoggerContext {
  std::filesystem::path output_dir;
  int64_t first_step = 0;  // completed steps of the checkpoint that training continues from; 0 = a new run
};

struct LoggerRow {
  const char* name;
  const char* help;
  std::unique_ptr<Logger> (*make)(const LoggerContext& context);
};

const std::vector<LoggerRow>& logger_registry();
std::vector<std::unique_ptr<Logger>> make_loggers(const std::vector<std::string>& names, const LoggerContext& context);

}  // namespace vla
