#include "launcher/launch.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "common/error.hpp"
#include "common/worker_env.hpp"
#include "launcher/devices/device_list.hpp"
#include "launcher/devices/numa_binding.hpp"
#include "launcher/dry_run.hpp"
#include "launcher/guardian.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/usage_text.hpp"
#include "launcher/output/log_folder.hpp"
#include "launcher/report/error_file.hpp"
#include "launcher/supervise.hpp"

namespace cxxrun {
namespace {

// Pipes and sockets must not become somebody's stdin, stdout or stderr.
void open_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
  }
}

// What the ranks will see: options may replace variables.
Environment rank_environment(const LauncherOptions& options) {
  return [&](const std::string& name) {
    for (const auto& [known, value] : options.more_environment) {
      if (known == name) return std::optional(value);
    }
    return environment_variable(name);
  };
}

// Where ranks announce deadlines, if the user has switched that on. TORCHELASTIC_TIMER_FILE alone is somebody else's.
std::string watchdog_file(const Environment& environment) {
  if (environment("TORCHELASTIC_ENABLE_FILE_TIMER") != "1") return "";
  if (const auto given = environment("TORCHELASTIC_TIMER_FILE"); given && !given->empty()) return *given;
  return fmt::format("{}/watchdog_timer_{}", environment("TMPDIR").value_or("/tmp"), ::getpid());
}

LaunchPlan make_plan(LauncherOptions options) {
  LaunchPlan plan{.options = std::move(options), .program = {}, .defaults = {}};
  const Environment environment = rank_environment(plan.options);
  plan.local_ranks = count_local_ranks(plan.options.nproc_per_node, environment);
  const std::string few_gpus = few_gpus_warning(plan.options.nproc_per_node, environment);
  if (!few_gpus.empty()) plan.options.warnings.push_back(few_gpus);
  plan.placements = place_ranks(plan.options.numa_binding, plan.local_ranks, environment);
  if (plan.options.virtual_local_rank) plan.devices = rank_devices(plan.local_ranks, environment);
  plan.program = resolve_program(plan.options, environment, own_folder());
  plan.launch_time =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  plan.watchdog_file = watchdog_file(environment);
  plan.defaults = default_variables(plan.local_ranks, count_usable_cpus(), environment);
  return plan;
}

void say(const std::string& text) { std::fputs(fmt::format("cxxrun: {}\n", text).c_str(), stderr); }

int run(const std::vector<std::string>& args, const std::string& called_as) {
  open_standard_streams();
  LauncherOptions options = parse_options(args, environment_variable, called_as);
  if (options.help) {
    std::fputs(help_text().c_str(), stdout);
    return 0;
  }
  if (options.version) {
    std::puts("cxxrun " CXXRUN_VERSION);
    return 0;
  }
  if (!options.completion.empty()) {
    std::fputs(completion_script(options.completion).c_str(), stdout);
    return 0;
  }
  const LaunchPlan plan = make_plan(std::move(options));
  for (const std::string& warning : plan.options.warnings) say("warning: " + warning);
  if (plan.options.dry_run) {
    std::fputs((plan.options.json ? describe_launch_as_json(plan) : describe_launch(plan)).c_str(), stdout);
    return 0;
  }
  const LogFolder logs(plan.options.output, plan.options.run_id, environment_variable("TMPDIR").value_or("/tmp"));
  if (logs.is_kept()) say("logs: " + logs.path());
  SignalSource signals(plan.options.stop_signals);
  return run_guarded(signals, [&](ControlChannel guardian) {
    return supervise(plan, logs.path(), std::move(guardian), signals);
  });
}

// For whoever started cxxrun and reads what it failed of.
void record(const std::string& message) {
  const auto file = environment_variable("TORCHELASTIC_ERROR_FILE");
  if (!file || file->empty()) return;
  try {
    write_error_file(*file, message);
  } catch (const Error& error) {
    say(fmt::format("warning: {}", error.what()));
  }
}

}  // namespace

int run_cxxrun(const std::vector<std::string>& args, const std::string& called_as) {
  try {
    return run(args, called_as);
  } catch (const UsageError& error) {
    say(error.what());
    return 2;
  } catch (const std::exception& error) {
    say(error.what());
    record(error.what());
    return 1;
  }
}

}  // namespace cxxrun
