#include "launcher/launch.hpp"

#include <fcntl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "common/error.hpp"
#include "common/worker_env.hpp"
#include "launcher/device_list.hpp"
#include "launcher/dry_run.hpp"
#include "launcher/guardian.hpp"
#include "launcher/options.hpp"
#include "launcher/supervise.hpp"

namespace cxxrun {
namespace {

// Where the ranks' error files go. Guardian and supervisor both remove it: one of them may have been killed.
class ErrorFolder {
 public:
  ErrorFolder() {
    std::string name = environment_variable("TMPDIR").value_or("/tmp") + "/cxxrun-XXXXXX";
    // Error files are a courtesy: without room for them the job runs all the same.
    if (::mkdtemp(name.data())) path_ = name;
  }
  ErrorFolder(const ErrorFolder&) = delete;
  ErrorFolder& operator=(const ErrorFolder&) = delete;
  ~ErrorFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Pipes and sockets must not become somebody's stdin, stdout or stderr.
void open_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
  }
}

LaunchPlan make_plan(LauncherOptions options) {
  LaunchPlan plan{.options = std::move(options), .program = {}, .defaults = {}};
  plan.local_ranks = count_local_ranks(plan.options.nproc_per_node, environment_variable);
  plan.program = resolve_program(plan.options, environment_variable, own_folder());
  plan.launch_time =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  plan.defaults = default_variables(plan.local_ranks, count_usable_cpus(), environment_variable);
  return plan;
}

int run(const std::vector<std::string>& args) {
  open_standard_streams();
  LauncherOptions options = parse_options(args, environment_variable);
  if (options.help) {
    std::fputs(help_text().c_str(), stdout);
    return 0;
  }
  if (options.version) {
    std::puts("cxxrun " CXXRUN_VERSION);
    return 0;
  }
  const LaunchPlan plan = make_plan(std::move(options));
  if (plan.options.dry_run) {
    std::fputs(describe_launch(plan).c_str(), stdout);
    return 0;
  }
  const ErrorFolder errors;
  return run_guarded([&](ControlChannel guardian, SignalSource& signals) {
    return supervise(plan, errors.path(), std::move(guardian), signals);
  });
}

}  // namespace

int run_cxxrun(const std::vector<std::string>& args) {
  try {
    return run(args);
  } catch (const UsageError& error) {
    std::fputs(fmt::format("cxxrun: {}\n", error.what()).c_str(), stderr);
    return 2;
  } catch (const std::exception& error) {
    std::fputs(fmt::format("cxxrun: {}\n", error.what()).c_str(), stderr);
    return 1;
  }
}

}  // namespace cxxrun
