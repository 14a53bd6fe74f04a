// Scalars for TensorBoard in tensorboard/ of the output folder, under metric_tag()s, and the configuration as text. A training
// that is continued writes another file, in whose favour TensorBoard drops the points past the checkpoint.
#pragma once

#include "worker/loggers/event_file.hpp"
#include "worker/loggers/logger.hpp"

namespace vla {

class TensorBoardLogger : public Logger {
 public:
  explicit TensorBoardLogger(const LoggerContext& context);
  void log(const StepMetrics& metrics) override;

 private:
  EventFile file_;
};

}  // namespace vla
