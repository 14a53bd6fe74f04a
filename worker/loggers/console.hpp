// One readable line per logged step, through the log facade: on rank 0's terminal and in the log file, and a hint when training
// waits for its data. On a terminal also a progress bar below them, which the file does not get.
#pragma once

#include <optional>
#include <string>

#include "worker/loggers/logger.hpp"
#include "worker/loggers/progress_bar.hpp"

namespace vla {

class ConsoleLogger : public Logger {
 public:
  explicit ConsoleLogger(const LoggerContext& context);
  ~ConsoleLogger() override;

  void log(const StepMetrics& metrics) override;
  void progress(int64_t step, int64_t total_steps) override;

 private:
  std::optional<ProgressBar> bar_;
  bool unicode_ = false;
  std::string postfix_;  // of the last log
  std::optional<int64_t> starving_since_;  // the step from which on too much time went into waiting for data
};

// "step 40/400 | epoch 1.25 | loss 0.8312 | lr 1.0e-04 | grad 4.21 | 210 samples/s | data wait 3% | l1_loss 0.7012 | ETA 1m 05s"
std::string console_line(const StepMetrics& metrics);

// Whether a program may write more than ASCII: LC_ALL, LC_CTYPE and LANG, the first that is set.
bool locale_is_utf8();

}  // namespace vla
