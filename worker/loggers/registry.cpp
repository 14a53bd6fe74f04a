#include "common/registry.hpp"
#include "worker/loggers/console.hpp"
#include "worker/loggers/jsonl.hpp"
#include "worker/loggers/tensorboard.hpp"
#include "worker/loggers/wandb.hpp"

namespace vla {

const std::vector<LoggerRow>& logger_registry() {
  static const std::vector<LoggerRow> rows = {
      {"console", "a line per logged step on the terminal and in the log file, and a progress bar on the terminal",
       [](const LoggerContext& context) -> std::unique_ptr<Logger> { return std::make_unique<ConsoleLogger>(context); }},
      {"jsonl", "a JSON object per logged step in metrics.jsonl",
       [](const LoggerContext& context) -> std::unique_ptr<Logger> { return std::make_unique<JsonlLogger>(context); }},
      {"tensorboard", "event files for TensorBoard in tensorboard/",
       [](const LoggerContext& context) -> std::unique_ptr<Logger> { return std::make_unique<TensorBoardLogger>(context); }},
      {"wandb", "Weights & Biases, through its own Python client",
       [](const LoggerContext& context) -> std::unique_ptr<Logger> { return std::make_unique<WandbLogger>(context); }},
  };
  return rows;
}

std::vector<std::unique_ptr<Logger>> make_loggers(const std::vector<std::string>& names, const LoggerContext& context) {
  std::vector<std::unique_ptr<Logger>> loggers;
  for (const std::string& name : names)
    loggers.push_back(cxxrun::find_in_registry(logger_registry(), name, "logger").make(context));
  return loggers;
}

}  // namespace vla
