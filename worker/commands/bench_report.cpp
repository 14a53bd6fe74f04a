#include "worker/commands/bench_report.hpp"

#include <cmath>
#include <limits>

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/csrc/distributed/c10d/NCCLUtils.hpp>

#include "worker/commands/version.hpp"
#include "worker/flops.hpp"
#include "worker/run_plan.hpp"

namespace vla {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kMfu[] = "FLOPs of a step's matrix products, convolutions and attention, forward and backward / (step time x dense peak of the precision)";

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

Json known(double value) { return std::isfinite(value) ? Json(value) : Json(); }

std::string number(const Json& value, const char* format, const char* otherwise = "-") {
  return value.is_number() ? fmt::format(fmt::runtime(format), value.get<double>()) : otherwise;
}

}  // namespace

Json measured_memory(at::Device device) {
  if (!device.is_cuda()) return nullptr;
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  const auto gib = [](const auto& stat) { return static_cast<double>(stat[kAll].peak) / (1 << 30); };
  return {{"allocated_gib", gib(stats.allocated_bytes)}, {"reserved_gib", gib(stats.reserved_bytes)}};
}

Json library_versions(at::Device device) {
  Json versions = {{"vla_worker", CXXRUN_VERSION}, {"libtorch", TORCH_VERSION}};
  if (!device.is_cuda()) return versions;
  const int cuda = static_cast<int>(at::detail::getCUDAHooks().versionCUDART());
  versions["cuda"] = fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10);
  versions["cudnn"] = fmt::format("{}", at::detail::getCUDAHooks().versionRuntimeCuDNN());
  versions["nccl"] = c10d::getNcclVersion();
  return versions;
}

Json bench_report(const Configuration& configuration, const cxxrun::World& world, const MeasureOptions& options, const Measurement& measured) {
  const TrainConfig& config = configuration.config;
  const TrainingOptions& training = config.training;
  const BatchPlan batch = resolve_batch(training.batch_size, training.batch_size_mode, world.size(), training.gradient_accumulation_steps);
  const StepMetrics& metrics = measured.metrics;
  const std::string device = cxxrun::device_name(world.device());
  const double peak = peak_flops(device, training.precision).value_or(kUnknown);
  const double mfu = metrics.mfu.value_or(kUnknown), forward = metrics.forward_s.value_or(kUnknown);
  Json report;
  report["policy"] = config.policy.type;
  report["parameters"] = measured.parameters;
  report["trainable_parameters"] = measured.trainable_parameters;
  report["device"] = device;
  report["ranks"] = world.size();
  report["batch"] = {{"effective", batch.effective}, {"per_gpu", batch.per_gpu}, {"accumulation", batch.accumulation}};
  report["precision"] = training.dtype == "float64" ? training.dtype : training.precision;
  report["communication"] = {{"first_bucket_mb", training.first_bucket_mb}, {"bucket_mb", training.bucket_mb},
                             {"gradient_dtype", training.gradient_dtype}};
  report["speed_mode"] = config.speed.is_fast(world.device().is_cuda()) ? "fast" : "reference";
  report["graph"] = measured.as_graph;
  report["graph_nodes"] = measured.graph_nodes;
  report["why_no_graph"] = measured.why_no_graph.empty() ? Json() : Json(measured.why_no_graph);
  report["resident"] = options.resident;
  report["warmup"] = options.warmup;
  report["steps"] = options.steps;
  report["step_ms"] = metrics.seconds_per_step * 1e3;
  report["median_step_ms"] = measured.median_step_s * 1e3;
  report["samples_per_s"] = metrics.samples_per_s;
  report["samples_per_s_per_gpu"] = metrics.samples_per_s / static_cast<double>(world.size());
  report["phases_ms"] = {{"data", known(metrics.data_s.value_or(kUnknown) * 1e3)},
                         {"forward", known(forward * 1e3)},
                         {"backward", known((metrics.forward_backward_s.value_or(kUnknown) - forward) * 1e3)},
                         {"exposed_communication", known(metrics.all_reduce_s.value_or(kUnknown) * 1e3)},
                         {"optimizer", known(metrics.optimizer_s.value_or(kUnknown) * 1e3)}};
  report["data_wait"] = metrics.data_wait;
  report["mfu"] = known(mfu);
  report["mfu_formula"] = kMfu;
  report["peak_tflops"] = known(peak / 1e12);
  report["tflop_per_step_and_rank"] = known(mfu * peak * metrics.seconds_per_step / 1e12);
  report["loss"] = metrics.loss;
  return report;
}

Json as_json(const StartTiming& timing) {
  Json phases = Json::object();
  for (const auto& [name, seconds] : timing.phases()) phases[name] = seconds;
  return {{"seconds", timing.total()}, {"phases", std::move(phases)}};
}

std::string bench_text(const Json& report) {
  std::string text = fmt::format("{} with {} parameters ({} trainable) on {} x {}\n", report.at("policy").get<std::string>(),
                                 report.at("parameters").get<int64_t>(), report.at("trainable_parameters").get<int64_t>(),
                                 report.at("ranks").get<int64_t>(), report.at("device").get<std::string>());
  const auto row = [&](const char* label, const std::string& value) { text += fmt::format("  {:<16}{}\n", label, value); };
  const Json& batch = report.at("batch");
  row("batch", fmt::format("{} = {} on each of {} ranks x {} accumulated", batch.at("effective").get<int64_t>(), batch.at("per_gpu").get<int64_t>(),
                           report.at("ranks").get<int64_t>(), batch.at("accumulation").get<int64_t>()));
  row("mode", fmt::format("{}, {}, {}{}", report.at("precision").get<std::string>(), report.at("speed_mode").get<std::string>(),
                          report.at("graph").get<bool>() ? fmt::format("as CUDA graphs of {} nodes", report.at("graph_nodes").get<int64_t>()) : "no graph: " + report.at("why_no_graph").dump(),
                          report.at("resident").get<bool>() ? ", batches on the device" : ""));
  row("step", fmt::format("{:.3f} ms, mean of {} steps after {}", report.at("step_ms").get<double>(), report.at("steps").get<int64_t>(),
                          report.at("warmup").get<int64_t>()));
  for (const auto& [name, value] : report.at("phases_ms").items()) {
    const double share = value.is_number() ? 100 * value.get<double>() / report.at("step_ms").get<double>() : 0;
    text += fmt::format("    {:<24}{:>10} ms {:>5.1f} %\n", name == "exposed_communication" ? "exposed communication" : name, number(value, "{:.3f}"), share);
  }
  row("samples/s", fmt::format("{:.1f} in all, {:.1f} on each rank", report.at("samples_per_s").get<double>(), report.at("samples_per_s_per_gpu").get<double>()));
  row("data wait", fmt::format("{:.1f} % of the time", 100 * report.at("data_wait").get<double>()));
  if (report.at("mfu").is_number()) {
    row("MFU", fmt::format("{:.1f} % = {:.2f} TFLOP a step and rank ({}; {:.0f} TFLOP/s)", 100 * report.at("mfu").get<double>(),
                           report.at("tflop_per_step_and_rank").get<double>(), kMfu, report.at("peak_tflops").get<double>()));
  }
  const Json& memory = report.at("memory");
  if (memory.is_object()) {
    row("GPU memory", fmt::format("{:.2f} GiB allocated at most, {:.2f} GiB reserved", memory.at("allocated_gib").get<double>(),
                                  memory.at("reserved_gib").get<double>()));
  }
  std::string versions;
  for (const auto& [name, value] : report.at("versions").items()) versions += fmt::format("{}{} {}", versions.empty() ? "" : ", ", name, value.get<std::string>());
  row("versions", versions);
  return text;
}

}  // namespace vla
