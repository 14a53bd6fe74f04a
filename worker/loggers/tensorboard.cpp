#include "worker/loggers/tensorboard.hpp"

#include <nlohmann/json.hpp>

#include "worker/loggers/metric_values.hpp"

namespace vla {

TensorBoardLogger::TensorBoardLogger(const LoggerContext& context) : file_(context.output_dir / "tensorboard", context.first_step + 1) {
  if (context.config_json.empty()) return;
  const auto config = nlohmann::ordered_json::parse(context.config_json);
  file_.add_text(context.first_step + 1, "config", "```\n" + config.dump(2) + "\n```");
}

void TensorBoardLogger::log(const StepMetrics& metrics) {
  auto values = metric_values(metrics);
  for (auto& [name, value] : values) name = metric_tag(name);
  file_.add_scalars(metrics.step, values);
}

}  // namespace vla
