// Metrics to Weights & Biases through its own Python client (wandb_client.py), which runs in a child process. Training never
// waits for it and never fails because of it: no Python, no package, a client that dies or hangs cost one warning, and the
// metrics are in metrics.jsonl all the same. Only the end waits, for at most `patience`.
#pragma once

#include <chrono>
#include <memory>

#include "worker/loggers/line_child.hpp"
#include "worker/loggers/logger.hpp"

namespace vla {

extern const char kWandbClient[];  // the text of wandb_client.py

class WandbLogger : public Logger {
 public:
  explicit WandbLogger(const LoggerContext& context, std::chrono::milliseconds patience = std::chrono::seconds(10));
  ~WandbLogger() override;  // after a failed training: the run is marked so

  void log(const StepMetrics& metrics) override;
  void progress(int64_t step, int64_t total_steps) override;
  void close() override;

 private:
  void exchange();
  void end(std::chrono::milliseconds limit);

  std::chrono::milliseconds patience_;
  std::unique_ptr<LineChild> client_;  // nullptr = there is none, any more
  bool warned_of_drops_ = false;
};

}  // namespace vla
