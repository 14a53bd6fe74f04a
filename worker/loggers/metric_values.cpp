#include "worker/loggers/metric_values.hpp"

#include <cmath>

#include <fmt/format.h>

namespace vla {

GpuStats together(const std::vector<GpuStats>& gpus) {
  GpuStats all{.memory_gb = NAN};
  for (const GpuStats& gpu : gpus) {
    all.utilisation += gpu.utilisation / static_cast<double>(gpus.size());
    all.memory_gb = std::fmax(all.memory_gb, gpu.memory_gb);  // fmax prefers a number to NaN
    all.power_w += gpu.power_w;
  }
  return all;
}

std::vector<std::pair<std::string, double>> metric_values(const StepMetrics& m) {
  std::vector<std::pair<std::string, double>> values = {{"epoch", m.epoch},
                                                        {"loss", m.loss},
                                                        {"lr", m.lr},
                                                        {"grad_norm", m.grad_norm},
                                                        {"samples_per_s", m.samples_per_s},
                                                        {"data_wait", m.data_wait},
                                                        {"step_s", m.seconds_per_step}};
  const auto add = [&](const char* name, const auto& value) {
    if (value) values.emplace_back(name, static_cast<double>(*value));
  };
  add("data_s", m.data_s);
  add("forward_backward_s", m.forward_backward_s);
  add("all_reduce_s", m.all_reduce_s);
  add("optimizer_s", m.optimizer_s);
  add("slowest_rank", m.slowest_rank);
  add("mfu", m.mfu);
  if (m.skipped_rows) values.emplace_back("skipped_rows", static_cast<double>(m.skipped_rows));
  if (!m.gpus.empty()) {
    const GpuStats all = together(m.gpus);
    values.emplace_back("gpu_util", all.utilisation);
    values.emplace_back("gpu_mem_gb", all.memory_gb);
    values.emplace_back("gpu_power_w", all.power_w);
    for (size_t rank = 0; m.gpus.size() > 1 && rank < m.gpus.size(); ++rank)
      values.emplace_back(fmt::format("gpu_util_rank{}", rank), m.gpus[rank].utilisation);
  }
  values.insert(values.end(), m.more.begin(), m.more.end());
  return values;
}

std::string metric_tag(const std::string& name) {
  for (const std::string group : {"val", "gpu"}) {
    if (name.starts_with(group + "_")) return group + "/" + name.substr(group.size() + 1);
  }
  return "train/" + name;
}

}  // namespace vla
