#include "launcher/option_rows.hpp"

#include <algorithm>
#include <cctype>

namespace cxxrun {
namespace {

using enum OptionSpec::Kind;
using enum OptionSpec::Origin;

constexpr OptionSpec kSpecs[] = {
    {.name = "nproc-per-node",
     .fallback = "1",
     .help = "ranks on this machine: a number, gpu, cpu or auto (gpu if there is one, else cpu)"},
    {.name = "nnodes", .fallback = "1:1", .help = "number of machines, N or MIN:MAX"},
    {.name = "node-rank", .kind = kInteger, .fallback = "0", .help = "which of the machines this is, from 0"},
    {.name = "master-addr", .fallback = "127.0.0.1", .help = "address of machine 0"},
    {.name = "master-port",
     .kind = kInteger,
     .help = "port on machine 0. One machine: a free one if not given; several: 29500"},
    {.name = "standalone", .kind = kFlag, .help = "one machine, any free port"},
    {.name = "max-restarts",
     .kind = kInteger,
     .fallback = "0",
     .help = "how often all ranks are started again after a rank failed"},
    {.name = "shutdown-timeout",
     .kind = kNumber,
     .help = "seconds between SIGTERM and SIGKILL for ranks that have to end (default: TORCH_ELASTIC_SHUTDOWN_TIMEOUT "
             "or 30)"},
    {.name = "no-python", .kind = kFlag, .help = "run the program directly, never through Python"},
    {.name = "module", .letter = 'm', .kind = kFlag, .help = "the program is a Python module"},
    {.name = "role", .fallback = "default", .help = "name of these ranks' role"},
    {.name = "rdzv-backend", .fallback = "static", .help = "static, or on one machine also c10d"},
    {.name = "rdzv-endpoint", .help = "HOST:PORT in place of --master-addr and --master-port"},
    {.name = "rdzv-id", .fallback = "none", .help = "name of the job"},
    {.name = "monitor-interval",
     .kind = kNumber,
     .fallback = "0.1",
     .help = "accepted; cxxrun learns of exits at once"},
    {.name = "start-method", .fallback = "spawn", .help = "accepted; has no meaning for commands"},
    {.name = "help", .letter = 'h', .kind = kFlag, .help = "print this text", .has_variable = false},

    {.name = "agent-store",
     .origin = kOwn,
     .fallback = "on",
     .help = "on: cxxrun serves the store that ranks meet at; off: rank 0 does"},
    {.name = "torchrun-exit-codes",
     .kind = kFlag,
     .origin = kOwn,
     .help = "return 1 for every failure, as torchrun does"},
    {.name = "dry-run",
     .kind = kFlag,
     .origin = kOwn,
     .help = "print what each rank would be started with, as shell lines"},
    {.name = "version", .kind = kFlag, .origin = kOwn, .help = "print the version"},

    {.name = "rdzv-conf", .origin = kUnsupported},
    {.name = "event-log-handler", .origin = kUnsupported},
    {.name = "run-path", .kind = kFlag, .origin = kUnsupported},
    {.name = "log-dir", .origin = kUnsupported},
    {.name = "redirects", .letter = 'r', .origin = kUnsupported},
    {.name = "tee", .letter = 't', .origin = kUnsupported},
    {.name = "log-line-prefix-template", .origin = kUnsupported},
    {.name = "local-ranks-filter", .origin = kUnsupported},
    {.name = "duplicate-stdout-filters", .origin = kUnsupported},
    {.name = "duplicate-stderr-filters", .origin = kUnsupported},
    {.name = "local-addr", .origin = kUnsupported},
    {.name = "logs-specs", .origin = kUnsupported, .has_variable = false},
    {.name = "numa-binding", .origin = kUnsupported, .has_variable = false},
    {.name = "signals-to-handle", .origin = kUnsupported},
    {.name = "virtual-local-rank", .kind = kFlag, .origin = kUnsupported},
    {.name = "print-completion", .origin = kUnsupported, .has_variable = false},
};

}  // namespace

std::string OptionSpec::underscored() const {
  std::string text(name);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

std::string OptionSpec::variable() const {
  if (!has_variable || origin == kOwn) return "";
  std::string text = "PET_" + underscored();
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::span<const OptionSpec> option_specs() { return kSpecs; }

}  // namespace cxxrun
