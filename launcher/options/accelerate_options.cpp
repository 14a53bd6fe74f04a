#include "common/error.hpp"
#include "launcher/options/option_readers.hpp"

namespace po = boost::program_options;

namespace cxxrun {
namespace {

void set(po::variables_map& values, const char* accelerate, const char* name, const boost::any& value) {
  if (values.count(name) && !values[name].defaulted()) {
    throw UsageError("--{} and --{} say the same thing: leave one out", accelerate, name);
  }
  values.insert_or_assign(name, po::variable_value(value, /*defaulted=*/false));
}

}  // namespace

void read_accelerate_options(LauncherOptions& options, po::variables_map& values) {
  const auto given = [&](const char* name) { return values.count(name) > 0; };
  int machines = 1;
  if (given("num-machines")) {
    machines = values["num-machines"].as<int>();
    if (machines < 1) throw UsageError("--num_machines={} must be at least 1", machines);
    set(values, "num_machines", "nnodes", std::to_string(machines));
  }
  if (given("num-processes")) {
    const int processes = values["num-processes"].as<int>();
    if (processes < 1 || processes % machines != 0) {
      throw UsageError(
          "--num_processes={} counts the ranks of all machines and cannot be divided by --num_machines={}: give a "
          "multiple of it",
          processes, machines);
    }
    set(values, "num_processes", "nproc-per-node", std::to_string(processes / machines));
  } else if (values["multi-gpu"].as<bool>() && values["nproc-per-node"].defaulted()) {
    set(values, "multi_gpu", "nproc-per-node", std::string("gpu"));
  }
  if (given("machine-rank")) set(values, "machine_rank", "node-rank", values["machine-rank"].value());
  if (given("main-process-ip")) set(values, "main_process_ip", "master-addr", values["main-process-ip"].value());
  if (given("main-process-port")) set(values, "main_process_port", "master-port", values["main-process-port"].value());

  auto& environment = options.more_environment;
  const std::string gpus = given("gpu-ids") ? values["gpu-ids"].as<std::string>() : "all";
  if (values["cpu"].as<bool>()) {
    if (gpus != "all") throw UsageError("--cpu and --gpu_ids={} exclude each other", gpus);
    environment.emplace_back("ACCELERATE_USE_CPU", "True");
    environment.emplace_back("CUDA_VISIBLE_DEVICES", "");
  } else if (gpus != "all") {
    environment.emplace_back("CUDA_VISIBLE_DEVICES", gpus);
  }
  if (given("mixed-precision")) {
    environment.emplace_back("ACCELERATE_MIXED_PRECISION", values["mixed-precision"].as<std::string>());
  }
}

}  // namespace cxxrun
