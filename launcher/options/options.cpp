#include "launcher/options/options.hpp"

#include <algorithm>

#include "common/error.hpp"
#include "launcher/options/argument_splitter.hpp"
#include "launcher/options/option_readers.hpp"
#include "launcher/options/option_values.hpp"
#include "launcher/report/exit_status.hpp"

namespace po = boost::program_options;

namespace cxxrun {
namespace {

constexpr double kLongest = 1e6;  // seconds

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

constexpr std::pair<std::string_view, NumaBinding> kNumaBindings[] = {
    {"", NumaBinding::kNone},
    {"node", NumaBinding::kNode},
    {"socket", NumaBinding::kSocket},
    {"exclusive", NumaBinding::kExclusive},
    {"core-complex", NumaBinding::kCoreComplex},
    {"auto", NumaBinding::kAuto},
};

NumaBinding numa_binding_of(const std::string& name) {  // which the option's choices allow
  return std::ranges::find(kNumaBindings, name, &std::pair<std::string_view, NumaBinding>::first)->second;
}

std::chrono::milliseconds read_shutdown_timeout(const po::variables_map& values, const Environment& environment) {
  double seconds = 30;
  if (values.count("shutdown-timeout")) {
    seconds = values["shutdown-timeout"].as<double>();
  } else if (const auto text = environment("TORCH_ELASTIC_SHUTDOWN_TIMEOUT")) {
    seconds = required_int(*text, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
  }
  if (!(seconds >= 0 && seconds < kLongest)) {
    throw UsageError("--shutdown-timeout={} must be a number of seconds of at least 0", seconds);
  }
  return milliseconds_of(seconds);
}

void read_stop_signals(LauncherOptions& options, const std::string& text) {
  options.signals_to_handle = text;
  options.stop_signals.clear();
  for (const std::string& name : split_list(text)) {
    int signo = 1;
    while (signo < SIGRTMIN && signal_name(signo) != name) ++signo;
    if (signo == SIGRTMIN || signo == SIGKILL || signo == SIGSTOP || signo == SIGCHLD) {
      options.warnings.push_back(fmt::format("--signals-to-handle: '{}' is no signal that can be handled", name));
    } else {
      options.stop_signals.insert(signo);
    }
  }
}

}  // namespace

std::string_view name_of(NumaBinding binding) {
  return std::ranges::find(kNumaBindings, binding, &std::pair<std::string_view, NumaBinding>::second)->first;
}

LauncherOptions parse_options(const std::vector<std::string>& args, const Environment& environment,
                              const std::string& called_as) {
  const SplitArguments split = split_arguments(args);
  LauncherOptions options;
  for (const auto& [spec, value] : split.options) {
    options.help |= spec->name == "help";
    options.version |= spec->name == "version";
    if (spec->name == "print-completion") options.completion = value;
  }
  if (options.help || options.version || !options.completion.empty()) return options;
  po::variables_map values = read_option_values(split, environment);
  const auto flag = [&](const char* name) { return values[name].as<bool>(); };
  const auto text = [&](const char* name) { return values.count(name) ? values[name].as<std::string>() : ""; };

  read_accelerate_options(options, values);
  read_meeting_options(options, values, environment);
  read_output_options(options, values, environment);
  options.dry_run = flag("dry-run");
  options.json = flag("json");
  if (options.json && !options.dry_run) throw UsageError("--json goes with --dry-run");
  options.nproc_per_node = text("nproc-per-node");
  options.numa_binding = numa_binding_of(text("numa-binding"));
  options.virtual_local_rank = flag("virtual-local-rank");
  options.role = text("role");
  options.agent_store = text("agent-store") == "on";
  options.event_log_handler = text("event-log-handler");
  if (const std::string& name = options.event_log_handler;
      name != "null" && name != "console" && name != "dynamic_rendezvous") {
    throw UsageError("--event-log-handler={} must be null or console", name);
  }
  if (const std::string specs = text("logs-specs"); !specs.empty() && specs != "default") {
    throw UsageError("--logs-specs={} names a Python class, which cxxrun cannot load: only 'default' works", specs);
  }

  options.max_restarts = values["max-restarts"].as<int>();
  if (options.max_restarts < 0) throw UsageError("--max-restarts={} must be at least 0", options.max_restarts);
  if (!(values["monitor-interval"].as<double>() > 0)) throw UsageError("--monitor-interval must be above 0");
  options.shutdown_timeout = read_shutdown_timeout(values, environment);
  if (values.count("hang-timeout")) {
    const double seconds = values["hang-timeout"].as<double>();
    if (!(seconds >= 0.001 && seconds < kLongest)) {
      throw UsageError("--hang-timeout={} must be seconds above 0, to the millisecond", seconds);
    }
    options.hang_timeout = milliseconds_of(seconds);
  }
  read_stop_signals(options, text("signals-to-handle"));
  options.torchrun_exit_codes = flag("torchrun-exit-codes");
  options.report_style = text("report-style") == "torchrun" ? ReportStyle::kTorchrun : ReportStyle::kCxxrun;
  options.report_file = text("report-file");

  options.no_python = flag("no-python");
  options.module = flag("module");
  options.run_path = flag("run-path");
  if (options.run_path) {
    options.no_python = options.module = false;  // as under torchrun, it wins
  } else if (options.no_python && options.module) {
    throw UsageError("--no-python and --module exclude each other");
  }
  options.launch_compat = flag("launch-compat") || called_as == "cxxlaunch";
  if (flag("use-env")) {
    if (!options.launch_compat) throw UsageError("--use-env goes with --launch-compat");
    options.launch_compat = false;
  } else if (options.launch_compat && options.no_python) {
    throw UsageError("--launch-compat with --no-python also needs --use-env: programs do not expect --local-rank");
  }
  options.program = split.program;
  options.program_args = split.program_args;
  if (options.program.empty()) throw UsageError("no program given: cxxrun [options] PROGRAM [its arguments]");
  return options;
}

}  // namespace cxxrun
