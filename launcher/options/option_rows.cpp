#include "launcher/options/option_rows.hpp"

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
    {.name = "node-rank", .kind = kInteger, .fallback = "0", .help = "which of the machines this is, from 0 (static)"},
    {.name = "master-addr", .fallback = "127.0.0.1", .help = "address of machine 0 (static)"},
    {.name = "master-port",
     .kind = kInteger,
     .help = "port on machine 0 (static). One machine: a free one if not given; several: 29500"},
    {.name = "standalone", .kind = kFlag, .help = "one machine, any free port"},
    {.name = "rdzv-backend",
     .fallback = "static",
     .help = "how machines meet: static, or c10d (any MIN:MAX of them, at --rdzv-endpoint)"},
    {.name = "rdzv-endpoint", .help = "HOST[:PORT]; with static in place of --master-addr and --master-port"},
    {.name = "rdzv-id", .fallback = "none", .help = "name of the job"},
    {.name = "rdzv-conf", .help = "KEY=VALUE,…: join_timeout, last_call_timeout, is_host, … (c10d), timeout (static)"},
    {.name = "local-addr", .help = "address of this machine for the others (c10d)"},
    {.name = "max-restarts",
     .kind = kInteger,
     .fallback = "0",
     .help = "how often all ranks are started again after a rank failed"},
    {.name = "shutdown-timeout",
     .kind = kNumber,
     .help = "seconds between SIGTERM and SIGKILL for ranks that have to end (default: TORCH_ELASTIC_SHUTDOWN_TIMEOUT "
             "or 30)"},
    {.name = "signals-to-handle",
     .fallback = "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
     .help = "signals that end the job; all others are passed on to the ranks"},
    {.name = "no-python", .kind = kFlag, .help = "run the program directly, never through Python"},
    {.name = "module", .letter = 'm', .kind = kFlag, .help = "the program is a Python module"},
    {.name = "run-path", .kind = kFlag, .help = "run the Python script with runpy.run_path"},
    {.name = "role", .fallback = "default", .help = "name of these ranks' role"},
    {.name = "log-dir", .help = "folder for the ranks' logs and error files: DIR/<job>_<random>/attempt_N/<local rank>/"},
    {.name = "redirects",
     .letter = 'r',
     .fallback = "0",
     .help = "streams that go to files instead of the console: 1 stdout, 2 stderr, 3 both, or 0:3,1:2 for local ranks"},
    {.name = "tee", .letter = 't', .fallback = "0", .help = "the same for streams that go to files and to the console"},
    {.name = "local-ranks-filter", .help = "local ranks whose output is shown, for example 0,3 (default: all)"},
    {.name = "log-line-prefix-template",
     .help = "what lines begin with: ${role_name}, ${local_rank}, ${rank}, ${hostname} are replaced"},
    {.name = "duplicate-stdout-filters",
     .help = "A,B: teed lines with A or B in them also go to filtered_stdout.log (,, is a comma)"},
    {.name = "duplicate-stderr-filters", .help = "the same for filtered_stderr.log"},
    {.name = "numa-binding",
     .help = "bind ranks to the CPUs near their GPUs: node, socket, exclusive, core-complex, or auto",
     .choices = "node,socket,exclusive,core-complex,auto",
     .has_variable = false},
    {.name = "virtual-local-rank", .kind = kFlag, .help = "each rank sees its own GPU only, as LOCAL_RANK 0"},
    {.name = "event-log-handler", .fallback = "null", .help = "console: events as JSON lines on stderr; or null"},
    {.name = "monitor-interval",
     .kind = kNumber,
     .fallback = "0.1",
     .help = "accepted; cxxrun learns of exits at once"},
    {.name = "start-method",
     .fallback = "spawn",
     .help = "accepted; has no meaning for commands",
     .choices = "spawn,fork,forkserver"},
    {.name = "logs-specs", .help = "accepted if it is 'default'", .has_variable = false},
    {.name = "print-completion",
     .help = "print the completion script of bash, zsh or tcsh",
     .choices = "bash,zsh,tcsh",
     .has_variable = false},
    {.name = "help", .letter = 'h', .kind = kFlag, .help = "print this text", .has_variable = false},

    {.name = "prefix",
     .origin = kOwn,
     .fallback = "auto",
     .help = "[rankN] before each line: auto (on a terminal, if several ranks write), always or never",
     .choices = "auto,always,never"},
    {.name = "hang-timeout",
     .kind = kNumber,
     .origin = kOwn,
     .help = "seconds without a heartbeat after which a rank that had one counts as failed (vla_worker beats once a step)"},
    {.name = "report-file", .origin = kOwn, .help = "write how the job ended to this file, as JSON"},
    {.name = "report-style",
     .origin = kOwn,
     .fallback = "cxxrun",
     .help = "failure report on stderr: cxxrun, or torchrun for its table",
     .choices = "cxxrun,torchrun"},
    {.name = "torchrun-exit-codes",
     .kind = kFlag,
     .origin = kOwn,
     .help = "return 1 for every failure, as torchrun does"},
    {.name = "agent-store",
     .origin = kOwn,
     .fallback = "on",
     .help = "on: cxxrun serves the store that ranks meet at; off: rank 0 does",
     .choices = "on,off"},
    {.name = "launch-compat",
     .kind = kFlag,
     .origin = kOwn,
     .help = "behave as torch.distributed.launch: --local-rank=N comes before the program's arguments"},
    {.name = "use-env", .kind = kFlag, .origin = kOwn, .help = "with --launch-compat: no --local-rank argument"},
    {.name = "dry-run",
     .kind = kFlag,
     .origin = kOwn,
     .help = "print what each rank would be started with, as shell lines"},
    {.name = "json", .kind = kFlag, .origin = kOwn, .help = "with --dry-run: print it as JSON"},
    {.name = "version", .kind = kFlag, .origin = kOwn, .help = "print the version"},

    {.name = "num-processes",
     .kind = kInteger,
     .origin = kAccelerate,
     .help = "ranks on all machines together: --nproc-per-node times --nnodes"},
    {.name = "num-machines", .kind = kInteger, .origin = kAccelerate, .help = "--nnodes"},
    {.name = "machine-rank", .kind = kInteger, .origin = kAccelerate, .help = "--node-rank"},
    {.name = "main-process-ip", .origin = kAccelerate, .help = "--master-addr"},
    {.name = "main-process-port", .kind = kInteger, .origin = kAccelerate, .help = "--master-port"},
    {.name = "gpu-ids", .origin = kAccelerate, .help = "CUDA_VISIBLE_DEVICES of the ranks, or all"},
    {.name = "multi-gpu", .kind = kFlag, .origin = kAccelerate, .help = "all visible GPUs, unless a number is given"},
    {.name = "cpu", .kind = kFlag, .origin = kAccelerate, .help = "hide the GPUs from the ranks"},
    {.name = "mixed-precision",
     .origin = kAccelerate,
     .help = "ACCELERATE_MIXED_PRECISION of the ranks",
     .choices = "no,fp16,bf16,fp8"},
};

}  // namespace

std::string OptionSpec::underscored() const {
  std::string text(name);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

std::string OptionSpec::variable() const {
  if (!has_variable || origin != kTorchrun) return "";
  std::string text = "PET_" + underscored();
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::span<const OptionSpec> option_specs() { return kSpecs; }

}  // namespace cxxrun
