// metrics.jsonl in the output folder (options.jsonl_name): one object per logged step with the step, metric_values() and, where
// given, sample_ids; null where a value is not finite. Opening it for a resumed run drops, atomically, what lies beyond the
// checkpoint's step and a last line that a killed run left torn. Every line is written at once.
#pragma once

#include "common/unique_fd.hpp"
#include "worker/loggers/logger.hpp"

namespace vla {

class JsonlLogger : public Logger {
 public:
  explicit JsonlLogger(const LoggerContext& context);
  void log(const StepMetrics& metrics) override;

 private:
  std::filesystem::path path_;
  cxxrun::UniqueFd fd_;
};

}  // namespace vla
