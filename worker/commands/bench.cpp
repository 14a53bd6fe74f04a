#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/log.hpp"
#include "common/option_parse.hpp"
#include "common/option_text.hpp"
#include "common/unique_fd.hpp"
#include "worker/commands/bench_report.hpp"
#include "worker/commands/command.hpp"
#include "worker/commands/training_run.hpp"
#include "worker/step_profiler.hpp"

namespace vla {
namespace {

struct BenchOptions {
  std::string json;
  int64_t steps = 30;
  int64_t warmup = 15;
  bool resident = false;
  int64_t profile = 0;
  std::string profile_dir = "profile";
  bool timing = false;

  void describe(cxxrun::OptionTable& table) {
    table.add("json", json, "print a JSON object instead of text, or store it in this file (--json=FILE)").path().one_of({"-"});
    table.add("steps", steps, "steps that are measured").at_least(1).in("steps");
    table.add("warmup", warmup, "steps before that; a step runs as a graph from the 12th on").at_least(1).in("steps");
    table.add("resident", resident, "use two batches, kept on the device, again and again: the model's speed, without data");
    table.add("profile", profile, "after the measured steps, write a Chrome trace of so many").at_least(0).in("steps");
    table.add("profile_dir", profile_dir, "folder of the traces, a file for each rank").path();
    table.add("timing", timing, "print what the start took, too; the JSON object always has it");
  }
};

constexpr char kBenchUsage[] =
    "vla_worker bench --config FILE [--json[=FILE]] [--steps N] [--warmup N] [--resident] [--profile N] [--timing] [--OPTION=VALUE...]\n\n"
    "Trains as `vla_worker train` does, but leaves nothing behind, and says how long a step takes and where its time goes. Every\n"
    "option of train may be given (vla_worker train --help); --steps is that of the benchmark.\n\n"
    "  vla_worker bench --config configs/act_demo.yaml --training.batch_size 64 --training.precision bf16-true\n"
    "  cxxrun --nproc_per_node=4 vla_worker bench --config configs/smolvla.yaml --json=smolvla.json --resident\n"
    "  vla_worker bench --config configs/act_demo.yaml --steps 10 --profile 3        then open profile/rank0.json in ui.perfetto.dev\n\n";

// Takes bench's own options out of the arguments and leaves train's.
std::vector<cxxrun::Setting> take_own_options(std::vector<std::string>& arguments, cxxrun::OptionTable& table) {
  std::vector<std::string> own, rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.starts_with("--") ? cxxrun::canonical_name(word.substr(2, equals - 2)) : "";
    const cxxrun::OptionRow* row = table.find(name);
    if (!row) {
      rest.push_back(word);
      continue;
    }
    const bool takes_next = name != "json" && !std::holds_alternative<bool*>(row->value);
    own.push_back(name == "json" && equals == word.size() ? "--json=-" : word);
    if (takes_next && equals == word.size() && i + 1 < arguments.size()) own.push_back(arguments[++i]);
  }
  arguments = std::move(rest);
  return cxxrun::parse_command_line(own, [&](std::string_view name) {
    const cxxrun::OptionRow* row = table.find(name);
    return row && std::holds_alternative<bool*>(row->value);
  });
}

// A training that is long enough, and that keeps nothing.
void prepare(TrainConfig& config, const BenchOptions& bench) {
  if (config.dump_config || config.dry_run) throw cxxrun::UsageError("dump_config and dry_run belong to train: leave them out of bench");
  config.training.epochs = 0;
  config.training.steps = bench.warmup + bench.steps + bench.profile;
  config.dry_run = true;  // no output folder, no loggers
  config.output_dir.clear();
}

// With --json, stdout is for the object alone: what else is printed goes to stderr as long as this lives.
class StdoutIsForJson {
 public:
  explicit StdoutIsForJson(bool on) {
    std::fflush(stdout);
    if (on) stdout_.reset(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
    if (stdout_) ::dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  StdoutIsForJson(const StdoutIsForJson&) = delete;
  StdoutIsForJson& operator=(const StdoutIsForJson&) = delete;
  ~StdoutIsForJson() {
    std::fflush(stdout);
    if (stdout_) ::dup2(stdout_.get(), STDOUT_FILENO);
  }

 private:
  cxxrun::UniqueFd stdout_;
};

void print_report(const BenchOptions& bench, const nlohmann::ordered_json& report) {
  if (bench.json.empty()) {
    fmt::print("{}", bench_text(report));
    if (bench.timing) {
      for (const std::string& line : timing_lines(start_timing())) fmt::print("{}\n", line);
    }
    if (report.contains("profile")) fmt::print("trace: {}\n", report.at("profile").get<std::string>());
  } else if (bench.json == "-") {
    fmt::print("{}\n", report.dump());
  } else {
    cxxrun::write_file_atomically(bench.json, report.dump(2) + "\n");
  }
  std::fflush(stdout);
}

}  // namespace

int bench_command(Arguments arguments) {
  BenchOptions bench;
  cxxrun::OptionTable table;
  bench.describe(table);
  std::vector<std::string> rest(arguments.begin(), arguments.end());
  for (const cxxrun::Setting& setting : take_own_options(rest, table)) cxxrun::apply_setting(table, setting);
  std::optional<StdoutIsForJson> quiet(std::in_place, bench.json == "-");
  const auto env = cxxrun::WorkerEnv::read();
  cxxrun::set_log_rank(env.rank);
  const ConfigSources sources = read_config_sources(rest, cxxrun::environment_variable);
  if (sources.wants_help || arguments.empty()) {
    quiet.reset();
    fmt::print("{}{}", kBenchUsage, cxxrun::help_text(table));
    return 0;
  }
  if (sources.find("resume").value_or("").size() > 0) {
    throw cxxrun::UsageError("bench starts a training of its own: leave --resume out; --policy.path=DIR starts from a checkpoint's weights");
  }
  const auto configuration = load_configuration(sources);
  prepare(configuration->config, bench);
  take_place_among_ranks(configuration->config, env, "bench", arguments);
  ShutdownWatcher shutdown(env.control_fd);
  start_timing().mark("options");

  TrainingWorld ranks(configuration->config, env);
  const cxxrun::World& world = ranks.world;
  const TrainingJob job{configuration->config, configuration->table, *configuration->policy, {}, std::nullopt};
  Trainer trainer(job, world, shutdown, ranks.launcher);
  const MeasureOptions measure{.warmup = bench.warmup, .steps = bench.steps, .resident = bench.resident, .before_step = {}};
  const Measurement measured = trainer.measure(measure);
  nlohmann::ordered_json report = bench_report(*configuration, world, measure, measured);
  report["memory"] = measured_memory(world.device());
  report["versions"] = library_versions(world.device());
  report["start"] = as_json(start_timing());
  if (bench.profile > 0) {
    StepProfiler profiler(0, bench.profile, std::filesystem::path(bench.profile_dir) / fmt::format("rank{}.json", world.rank()), world.device());
    trainer.measure({.warmup = 0, .steps = bench.profile, .resident = bench.resident, .before_step = [&](int64_t step) { profiler.before_step(step); }});
    profiler.finish();
    report["profile"] = profiler.file().string();
  }
  quiet.reset();
  if (world.is_main()) print_report(bench, report);
  world.barrier();
  return 0;
}

}  // namespace vla
