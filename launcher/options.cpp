#include "launcher/options.hpp"

#include <algorithm>
#include <cctype>
#include <random>
#include <sstream>

#include "common/error.hpp"
#include "launcher/argument_splitter.hpp"
#include "launcher/option_values.hpp"

namespace po = boost::program_options;

namespace cxxrun {
namespace {

constexpr int kDefaultPort = 29500;

void read_nodes(LauncherOptions& options, const std::string& text) {
  const size_t colon = text.find(':');
  if (colon != text.rfind(':')) throw UsageError("--nnodes={} is not N or MIN:MAX", text);
  options.min_nodes = required_int(text.substr(0, colon), "--nnodes");
  options.max_nodes = colon == text.npos ? options.min_nodes : required_int(text.substr(colon + 1), "--nnodes");
  if (options.min_nodes < 1 || options.max_nodes < options.min_nodes) {
    throw UsageError("--nnodes={}: the minimum must be at least 1 and at most the maximum", text);
  }
}

int checked_port(int port, const std::string& source) {
  if (port < 0 || port > 65535) throw UsageError("{}={} is not a port: it must be between 0 and 65535", source, port);
  return port;
}

// HOST, HOST:PORT, [v6] or [v6]:PORT.
void read_endpoint(LauncherOptions& options, const std::string& endpoint, bool port_required) {
  static constexpr char kHostCharacters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  const bool bracketed = endpoint.starts_with('[');
  const size_t host_end = bracketed ? endpoint.find(']') : std::min(endpoint.find(':'), endpoint.size());
  std::string host, rest;
  if (host_end != endpoint.npos) {
    host = endpoint.substr(bracketed, host_end - bracketed);
    rest = endpoint.substr(host_end + bracketed);
  }
  const bool good_host = bracketed ? host.find_first_not_of("0123456789abcdefABCDEF:.") == host.npos
                                   : host.find_first_not_of(kHostCharacters) == host.npos;
  const auto port = rest.size() > 1 && std::isdigit(static_cast<unsigned char>(rest[1]))
                        ? parse_python_int(rest.substr(1))
                        : std::nullopt;
  if (host.empty() || !good_host || (!rest.empty() && (rest[0] != ':' || !port))) {
    throw UsageError("--rdzv-endpoint={} is not HOST:PORT", endpoint);
  }
  if (!port && port_required) throw UsageError("--rdzv-endpoint={}: the port is missing; write HOST:PORT", endpoint);
  options.master_addr = host;
  if (port) options.master_port = checked_port(*port, "the port of --rdzv-endpoint");
}

std::string random_id() {
  std::random_device random;
  return fmt::format("{:08x}-{:08x}", random(), random());
}

void read_meeting_point(LauncherOptions& options, const po::variables_map& values, const Environment& environment) {
  const bool one_node = options.max_nodes == 1;
  const bool standalone = values["standalone"].as<bool>();
  const std::string backend = standalone ? "c10d" : values["rdzv-backend"].as<std::string>();
  const std::string endpoint =
      values.count("rdzv-endpoint") && !standalone ? values["rdzv-endpoint"].as<std::string>() : "";
  if (standalone && !one_node) {
    throw UsageError("--standalone is for one machine, but --nnodes asks for {}", options.max_nodes);
  }
  if (backend != "static" && backend != "c10d") {
    throw UsageError("cxxrun does not support --rdzv-backend={} (known: static, and c10d on one machine)", backend);
  }
  if (backend == "c10d" && !one_node) {
    throw UsageError(
        "cxxrun does not support --rdzv-backend=c10d on several machines; use static with --node-rank and "
        "--master-addr");
  }

  if (!endpoint.empty()) {
    read_endpoint(options, endpoint, backend == "static");
  } else if (!standalone) {
    options.master_addr = values["master-addr"].as<std::string>();
    if (values.count("master-port")) {
      options.master_port = checked_port(values["master-port"].as<int>(), "--master-port");
    } else if (!one_node) {
      options.master_port = kDefaultPort;
    } else if (const auto inherited = environment("MASTER_PORT")) {
      // Left over from an earlier job or a recipe: a wish on one machine, where nobody else has to know the port.
      options.master_port = std::clamp(parse_python_int(*inherited).value_or(0), 0, 65535);
      options.port_is_hard = false;
      return;
    }
  }
  options.port_is_hard = options.master_port != 0;
  if (!one_node && options.master_port == 0) {
    throw UsageError("several machines need a port that all of them know, not 0");
  }
}

}  // namespace

LauncherOptions parse_options(const std::vector<std::string>& args, const Environment& environment) {
  const SplitArguments split = split_arguments(args);
  LauncherOptions options;
  for (const auto& [spec, value] : split.options) {
    options.help |= spec->name == "help";
    options.version |= spec->name == "version";
  }
  if (options.help || options.version) return options;
  const po::variables_map values = read_option_values(split, environment);

  options.dry_run = values["dry-run"].as<bool>();
  options.nproc_per_node = values["nproc-per-node"].as<std::string>();
  read_nodes(options, values["nnodes"].as<std::string>());
  if (options.max_nodes > 1) options.node_rank = values["node-rank"].as<int>();
  if (options.node_rank < 0 || options.node_rank >= options.max_nodes) {
    throw UsageError("--node-rank={} must be from 0 to {}: --nnodes is {}", options.node_rank, options.max_nodes - 1,
                     options.max_nodes);
  }
  read_meeting_point(options, values, environment);

  options.run_id = values["rdzv-id"].as<std::string>();
  const bool id_given = !values["rdzv-id"].defaulted();
  if (options.run_id.empty() || (!id_given && options.max_nodes == 1 && !options.port_is_hard)) {
    options.run_id = random_id();
  }
  options.role = values["role"].as<std::string>();

  const std::string store = values["agent-store"].as<std::string>();
  if (store != "on" && store != "off") throw UsageError("--agent-store={} must be on or off", store);
  options.agent_store = store == "on";

  options.max_restarts = values["max-restarts"].as<int>();
  if (options.max_restarts < 0) throw UsageError("--max-restarts={} must be at least 0", options.max_restarts);
  if (values["monitor-interval"].as<double>() <= 0) throw UsageError("--monitor-interval must be above 0");
  double timeout = static_cast<double>(options.shutdown_timeout.count()) / 1000;
  if (values.count("shutdown-timeout")) {
    timeout = values["shutdown-timeout"].as<double>();
  } else if (const auto text = environment("TORCH_ELASTIC_SHUTDOWN_TIMEOUT")) {
    timeout = required_int(*text, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
  }
  if (!(timeout >= 0 && timeout < 1e6)) {
    throw UsageError("--shutdown-timeout={} must be a number of seconds of at least 0", timeout);
  }
  options.shutdown_timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout * 1000));
  options.torchrun_exit_codes = values["torchrun-exit-codes"].as<bool>();

  options.no_python = values["no-python"].as<bool>();
  options.module = values["module"].as<bool>();
  if (options.no_python && options.module) throw UsageError("--no-python and --module exclude each other");
  options.program = split.program;
  options.program_args = split.program_args;
  if (options.program.empty()) throw UsageError("no program given: cxxrun [options] PROGRAM [its arguments]");
  return options;
}

std::string help_text() {
  std::ostringstream text;
  text << "cxxrun starts a program N times, one rank per GPU or CPU, with the environment that torchrun gives.\n\n"
          "  cxxrun [options] PROGRAM [its arguments]\n\n"
          "PROGRAM is a native executable or a Python script. Examples:\n"
          "  cxxrun --nproc_per_node=2 vla_worker --config configs/act_demo.yaml\n"
          "  cxxrun --nproc_per_node=gpu --max_restarts=3 train.py --lr 1e-4\n"
          "  cxxrun --nnodes=2 --node_rank=0 --master_addr=10.0.0.1 --nproc_per_node=8 train.py     (and node_rank=1 "
          "on the other)\n"
          "  cxxrun --dry-run --nproc_per_node=2 train.py                                           (show what would "
          "be started)\n\n"
       << option_descriptions()
       << "\nEvery option of torchrun can also come from PET_<NAME>, for example PET_NPROC_PER_NODE=2.\n"
          "Exit code: 0 if all ranks return 0, else that of the rank that failed first (128+n for signal n); 128+n "
          "when cxxrun is\n"
          "stopped by signal n; 2 for wrong usage.\n";
  return text.str();
}

}  // namespace cxxrun
