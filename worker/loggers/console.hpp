// One readable line per logged step, through the log facade: on rank 0's terminal and in train.log.
#pragma once

#include <string>

#include "worker/loggers/logger.hpp"

namespace vla {

class ConsoleLogger : public Logger {
 public:
  void log(const StepMetrics& metrics) override;
};

// "step 40/400 | epoch 1.25 | loss 0.8312 | lr 1.0e-04 | grad 4.21 | 210 samples/s | data wait 3% | l1_loss 0.7012 | ETA 1m 05s"
std::string console_line(const StepMetrics& metrics);

}  // namespace vla
