#include <algorithm>
#include <cctype>
#include <random>

#include "common/error.hpp"
#include "common/registry.hpp"
#include "launcher/options/option_readers.hpp"
#include "launcher/options/option_values.hpp"
#include "launcher/rendezvous/rendezvous_conf.hpp"

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

// KEY=VALUE,KEY=VALUE. Whole strings arrive quoted from scripts that quote twice.
std::map<std::string, std::string> read_conf(std::string text) {
  std::map<std::string, std::string> conf;
  text = unquoted(std::move(text));
  for (size_t start = 0; !text.empty() && start <= text.size();) {
    const size_t comma = std::min(text.find(',', start), text.size());
    const std::string pair = text.substr(start, comma - start);
    const size_t equals = pair.find('=');
    const std::string key = unquoted(pair.substr(0, equals));
    const std::string value = equals == pair.npos ? "" : unquoted(pair.substr(equals + 1));
    if (key.empty()) throw UsageError("--rdzv-conf={}: '{}' is not KEY=VALUE", text, pair);
    if (value.empty()) throw UsageError("--rdzv-conf={}: '{}' has no value", text, key);
    for (const char* option : {"backend", "endpoint", "run_id", "min_nodes", "max_nodes", "local_addr"}) {
      if (key == option) throw UsageError("--rdzv-conf: '{}' is an option of its own, not a key", key);
    }
    conf[key] = value;
    start = comma + 1;
  }
  return conf;
}

void check_backend(const std::string& backend) {
  if (backend == "static" || backend == "c10d") return;
  if (backend.starts_with("etcd")) {
    throw UsageError("cxxrun does not support --rdzv-backend={}: use c10d, which needs no server", backend);
  }
  throw UsageError("--rdzv-backend={} is not known (known: static, c10d){}", backend,
                   did_you_mean(backend, {"static", "c10d"}));
}

void read_static(LauncherOptions& options, const po::variables_map& values, const Environment& environment,
                 const std::string& endpoint) {
  const bool one_node = options.max_nodes == 1;
  if (!endpoint.empty()) {
    read_endpoint(options, endpoint, /*port_required=*/true);
  } else {
    options.master_addr = values["master-addr"].as<std::string>();
    if (values.count("master-port")) {
      options.master_port = checked_port(values["master-port"].as<int>(), "--master-port");
    } else if (!one_node) {
      options.master_port = kDefaultPort;
    } else if (const auto inherited = environment("MASTER_PORT")) {
      // Left over from an earlier job or a recipe: a wish on one machine, where nobody else has to know the port.
      options.master_port = std::clamp(parse_python_int(*inherited).value_or(0), 0, 65535);
      return;
    }
  }
  options.port_is_hard = options.master_port != 0;
  if (!one_node && options.master_port == 0) {
    throw UsageError("several machines need a port that all of them know, not 0");
  }
}

void read_c10d(LauncherOptions& options, const po::variables_map& values, const std::string& endpoint) {
  if (!values["master-addr"].defaulted() || values.count("master-port")) {
    options.warnings.push_back("--master-addr and --master-port mean nothing with c10d: --rdzv-endpoint does");
  }
  if (values["node-rank"].as<int>() != 0) {
    options.warnings.push_back("--node-rank means nothing with c10d: machines get their ranks when they meet");
  }
  if (!endpoint.empty()) read_endpoint(options, endpoint, /*port_required=*/false);
  options.port_is_hard = options.master_port != 0;
  if (options.max_nodes == 1) {
    if (!options.local_addr.empty()) options.master_addr = options.local_addr;
    return;
  }
  if (endpoint.empty()) options.master_addr = "localhost";
  const size_t colon = endpoint.rfind(':');
  if (colon != endpoint.npos && !endpoint.ends_with(']') && options.master_port == 0) {
    throw UsageError("--rdzv-endpoint={}: several machines need a port that all of them know, not 0", endpoint);
  }
}

std::string random_id() {
  std::random_device random;
  return fmt::format("{:08x}-{:08x}", random(), random());
}

}  // namespace

void read_meeting_options(LauncherOptions& options, const po::variables_map& values, const Environment& environment) {
  read_nodes(options, values["nnodes"].as<std::string>());
  const bool standalone = values["standalone"].as<bool>();
  options.rdzv_backend = standalone ? "c10d" : values["rdzv-backend"].as<std::string>();
  if (standalone && options.max_nodes != 1) {
    throw UsageError("--standalone is for one machine, but --nnodes asks for {}", options.max_nodes);
  }
  check_backend(options.rdzv_backend);
  if (values.count("rdzv-conf")) options.rdzv_conf = read_conf(values["rdzv-conf"].as<std::string>());
  if (values.count("local-addr")) options.local_addr = values["local-addr"].as<std::string>();

  const std::string endpoint = values.count("rdzv-endpoint") ? values["rdzv-endpoint"].as<std::string>() : "";
  if (options.rdzv_backend == "static") {
    if (options.max_nodes > 1) options.node_rank = values["node-rank"].as<int>();
    if (options.node_rank < 0 || options.node_rank >= options.max_nodes) {
      throw UsageError("--node-rank={} must be from 0 to {}: --nnodes is {}", options.node_rank, options.max_nodes - 1,
                       options.max_nodes);
    }
    read_static(options, values, environment, endpoint);
  } else {
    read_c10d(options, values, standalone ? "" : endpoint);
  }

  options.run_id = values["rdzv-id"].as<std::string>();
  const bool id_given = !values["rdzv-id"].defaulted();
  if (options.run_id.empty() || (!id_given && options.max_nodes == 1 && !options.port_is_hard)) {
    options.run_id = random_id();
  }
}

}  // namespace cxxrun
