#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include <torch/torch.h>

#include "common/error.hpp"
#include "common/log.hpp"
#include "common/option_parse.hpp"
#include "common/option_text.hpp"
#include "common/scope_exit.hpp"
#include "worker/commands/command.hpp"
#include "worker/distributed/process_group.hpp"
#include "worker/inference/policy_server.hpp"

namespace vla {
namespace {

struct ServeOptions {
  std::string checkpoint, socket;
  int64_t port = -1;
  std::string device = "auto";
  int64_t threads = 0;
  int64_t seed = 0;
  bool ema = false;
  std::string image_size = "exact";
  int64_t report_every = 100;

  void describe(cxxrun::OptionTable& table) {
    table.add("checkpoint", checkpoint, "folder of the checkpoint, as of train's").path();
    table.add("socket", socket, "path of the Unix socket to serve on; only its owner may connect").path();
    table.add("port", port, "instead of socket: port of 127.0.0.1; 0 = one that is free").at_least(-1).at_most(65535);
    table.add("device", device, "auto | cpu | cuda | cuda:N");
    table.add("threads", threads, "CPU threads of a prediction; 0 = one a core; 1 has the steadiest latency where other programs compute too")
        .at_least(0)
        .at_most(1024);
    table.add("seed", seed, "of policies that sample their actions").at_least(0);
    table.add("ema", ema, "serve the averaged weights");
    table.add("image_size", image_size,
              "exact: images must have the size of the training's; resize: others are resized to it (antialiased, as torchvision does); "
              "any: given to the policy as they are")
        .one_of({"exact", "resize", "any"});
    table.add("report_every", report_every, "a line of latencies every so many predictions").at_least(1);
  }
};

constexpr char kServeUsage[] =
    "vla_worker serve --checkpoint DIR [--socket PATH | --port N] [--OPTION=VALUE...]\n\n"
    "Gives a chunk of actions for every observation that a program on this machine sends (scripts/policy_client.py is a client; the\n"
    "protocol stands in worker/inference/protocol.hpp). TERM or INT ends it.\n\n"
    "  vla_worker serve --checkpoint outputs/20250115_123456/checkpoints/last --socket /tmp/policy.sock\n\n";

// TERM and INT make a descriptor readable. A second one ends the process as if nobody had asked.
std::atomic<int> stop_event = -1;

void request_stop(int) {
  const int saved = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_event, &one, sizeof one);
  errno = saved;
}

cxxrun::UniqueFd stop_on_signals() {
  cxxrun::UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  if (!event) throw cxxrun::errno_error("cannot watch signals");
  stop_event = event.get();
  struct sigaction action = {};
  action.sa_handler = &request_stop;
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  for (const int signal_number : {SIGTERM, SIGINT}) ::sigaction(signal_number, &action, nullptr);
  return event;
}

// The first prediction allocates and chooses kernels; the first client should not wait for that.
void warm_up(PolicyRunner& runner) {
  PolicyRunner::Session session;
  Observation observation{.values = {}, .task = ""};
  for (const PolicyFeature* feature : runner.inputs()) {
    const bool is_image = feature->type == data::FeatureType::kVisual;
    observation.values[feature->key] = is_image ? torch::zeros({feature->shape.at(1), feature->shape.at(2), feature->shape.at(0)}, torch::kByte)
                                                : torch::zeros(feature->shape);
  }
  runner.observe(session, observation);
  runner.predict(session);
}

}  // namespace

int serve_command(Arguments arguments) {
  ServeOptions options;
  cxxrun::OptionTable table;
  options.describe(table);
  if (arguments.empty() || arguments.front() == "--help" || arguments.front() == "-h") {
    fmt::print("{}{}", kServeUsage, cxxrun::help_text(table));
    return 0;
  }
  for (const cxxrun::Setting& setting : cxxrun::parse_command_line(arguments, [](std::string_view name) { return name == "ema"; })) {
    cxxrun::apply_setting(table, setting);
  }
  if (options.checkpoint.empty()) throw cxxrun::UsageError("serve needs --checkpoint DIR");
  if (options.socket.empty() == (options.port < 0)) throw cxxrun::UsageError("serve needs an address: either --socket PATH or --port N");

  if (options.threads > 0) at::set_num_threads(static_cast<int>(options.threads));
  const cxxrun::UniqueFd stop = stop_on_signals();
  const at::Device device = cxxrun::choose_device(options.device, cxxrun::WorkerEnv::read());
  PolicyRunner runner(load_policy(options.checkpoint, options.ema, device), device,
                      {.seed = static_cast<uint64_t>(options.seed), .image_size = options.image_size});
  warm_up(runner);
  PolicyServer server(runner, {.socket = options.socket, .port = options.port, .report_every = options.report_every});
  cxxrun::log_info("{}: policy {} on {}, listening on {}", runner.loaded().folder.string(), runner.loaded().type, device.str(), server.address());
  server.serve(stop.get());
  cxxrun::log_info("asked to stop after {} predictions: {}", server.latencies().count(), server.latencies().text());
  return 0;
}

}  // namespace vla
