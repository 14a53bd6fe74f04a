#include "worker/loggers/wandb.hpp"

#include <algorithm>
#include <ctime>
#include <random>

#include <fmt/chrono.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/log.hpp"
#include "common/worker_env.hpp"
#include "worker/loggers/metric_values.hpp"

namespace vla {
namespace {

std::string new_id() {
  // Two jobs may start in the same second.
  return fmt::format("run_{:%Y%m%d_%H%M%S}_{:08x}", fmt::localtime(std::time(nullptr)), std::random_device()());
}

std::string first_given(const std::string& option, const char* variable, const std::string& otherwise) {
  if (!option.empty()) return option;
  const auto value = cxxrun::environment_variable(variable);
  return value && !value->empty() ? *value : otherwise;
}

// The same for all attempts of a training: given, or found beside the checkpoint that it continues from.
std::string run_id(const LoggerContext& context) {
  const auto file = context.output_dir / "wandb_id.txt";
  std::string id = first_given(context.options.wandb.id, "WANDB_RUN_ID", "");
  if (id.empty() && context.first_step > 0 && std::filesystem::exists(file)) {
    id = cxxrun::read_file(file);
    id.erase(id.find_last_not_of(" \r\n") + 1);
  }
  if (id.empty()) id = new_id();
  cxxrun::remove_leftovers_of(file);
  cxxrun::write_file_atomically(file, id + "\n");
  return id;
}

nlohmann::json init_record(const LoggerContext& context) {
  const WandbOptions& options = context.options.wandb;
  nlohmann::json init = {{"mode", options.mode}, {"id", run_id(context)}, {"dir", context.output_dir.string()}, {"resume", options.resume}};
  init["name"] = first_given(options.name, "WANDB_NAME", context.output_dir.lexically_normal().filename().string());
  init["project"] = first_given(options.project, "WANDB_PROJECT", "vla_worker");
  if (!options.entity.empty()) init["entity"] = options.entity;
  if (!options.notes.empty()) init["notes"] = options.notes;
  if (!options.tags.empty()) init["tags"] = options.tags;
  if (!context.config_json.empty()) init["config"] = nlohmann::json::parse(context.config_json);
  return {{"init", init}};
}

// Without colours and wandb's own prefixes.
std::string plain(std::string text) {
  for (size_t at = text.find("\x1b["); at != text.npos; at = text.find("\x1b[", at)) {
    const size_t end = text.find('m', at);
    text.erase(at, end == text.npos ? end : end + 1 - at);
  }
  while (text.starts_with("wandb:")) text.erase(0, std::min(text.find_first_not_of(' ', 6), text.size()));
  return text;
}

void show(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    if (const std::string text = plain(line); !text.empty()) cxxrun::log_info("wandb: {}", text);
  }
}

}  // namespace

WandbLogger::WandbLogger(const LoggerContext& context, std::chrono::milliseconds patience) : patience_(patience) {
  const std::string init = init_record(context).dump();
  try {
    client_ = std::make_unique<LineChild>(std::vector<std::string>{context.options.wandb.python, "-u", "-c", kWandbClient});
  } catch (const cxxrun::Error& error) {
    cxxrun::log_warning("{}: nothing goes to W&B; name a Python that has the package wandb in logging.wandb.python", error.what());
    return;
  }
  client_->send(init);
  exchange();
}

// Other ranks wait for the news that this one failed.
WandbLogger::~WandbLogger() { end(std::min<std::chrono::milliseconds>(patience_, std::chrono::seconds(3))); }

void WandbLogger::log(const StepMetrics& metrics) {
  if (!client_) return;
  nlohmann::json values;
  for (const auto& [name, value] : metric_values(metrics)) values[metric_tag(name)] = value;
  client_->send(nlohmann::json{{"log", values}, {"step", metrics.step}}.dump());
  exchange();
}

void WandbLogger::progress(int64_t, int64_t) { exchange(); }

void WandbLogger::close() {
  if (!client_) return;
  client_->send(R"({"finish": true})");
  end(patience_);
}

void WandbLogger::exchange() {
  if (!client_) return;
  const bool running = client_->is_running();  // asked first: its last words are read below
  show(client_->exchange());
  if (client_->dropped_lines() > 0 && !std::exchange(warned_of_drops_, true)) {
    cxxrun::log_warning("the W&B client does not keep up: its oldest metrics are dropped");
  }
  if (running) return;
  cxxrun::log_warning("the W&B client has ended ({}): nothing more goes to W&B", client_->exit_text());
  client_.reset();
}

void WandbLogger::end(std::chrono::milliseconds limit) {
  if (!client_) return;
  std::vector<std::string> output;
  const bool ended = client_->finish(limit, output);
  show(output);
  if (!ended) {
    cxxrun::log_warning("the W&B client did not end within {} s and was killed: send the rest by `wandb sync`",
                        std::chrono::duration<double>(limit).count());
  } else if (client_->exit_text() != "exit code 0") {
    cxxrun::log_warning("the W&B client has ended ({}): the last metrics may not have arrived", client_->exit_text());
  }
  if (client_->dropped_lines() > 0) cxxrun::log_warning("{} records were not sent to W&B", client_->dropped_lines());
  client_.reset();
}

}  // namespace vla
