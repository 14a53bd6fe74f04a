#include "launcher/report/job_outcome.hpp"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>

namespace cxxrun {
namespace {

struct Remedy {
  const char* text;  // that the rank wrote
  const char* remedy;
};

constexpr char kGpuMemory[] =
    "GPU memory is full: lower the batch size or accumulate gradients; nvidia-smi shows who else uses the GPU";
constexpr char kMainMemory[] =
    "main memory ran out: fewer loader workers, a smaller batch, or a higher limit for this container";
constexpr char kNoGpu[] = "CUDA_VISIBLE_DEVICES hides the GPUs, or there are none: nvidia-smi -L lists them";
constexpr char kLibrary[] = "the loader's search path lacks that library: set LD_LIBRARY_PATH, or install it";
constexpr char kPortTaken[] =
    "leave out --master-port so that a free one is taken, or end the process that has it (ss -ltnp)";
constexpr char kWaits[] =
    "a rank waited for another that was late or gone: look for the rank that is slow or has stopped (cxxrun --hang-timeout names "
    "it), or give init_process_group a longer timeout";
constexpr char kUnreachable[] =
    "MASTER_ADDR:MASTER_PORT does not answer: is the node with rank 0 running there, and does a firewall let it through?";
constexpr char kPeerGone[] = "the rank at the other end ended first: look for the earliest error, on other nodes as well";
constexpr char kNccl[] = "NCCL_DEBUG=INFO says what it tried; NCCL_P2P_DISABLE=1 and NCCL_IB_DISABLE=1 rule out the links";

// The first that fits wins, so causes stand before what follows from them.
constexpr Remedy kRemedies[] = {
    {"CUDA out of memory", kGpuMemory},
    {"CUDA error: out of memory", kGpuMemory},
    {"Cuda failure 2 'out of memory'", kGpuMemory},
    {"OutOfMemoryError", kGpuMemory},
    {"MemoryError", kMainMemory},
    {"std::bad_alloc", kMainMemory},
    {"annot allocate memory", kMainMemory},
    {"can't allocate memory", kMainMemory},
    {"invalid device ordinal", "there are fewer GPUs than ranks: lower --nproc-per-node or use --nproc-per-node=gpu"},
    {"No CUDA GPUs are available", kNoGpu},
    {"no CUDA-capable device", kNoGpu},
    {"No such device", "a device file is missing: a container needs --gpus or --device to see it"},
    {"ddress already in use", kPortTaken},
    {"EADDRINUSE", kPortTaken},
    {"error while loading shared libraries", kLibrary},
    {"cannot open shared object file", kLibrary},
    {"ModuleNotFoundError", "another Python than you think? PYTHON_EXEC chooses the interpreter"},
    {"No space left on device", "a disk is full, or /dev/shm is (docker: --shm-size)"},
    {"Too many open files", "raise the limit: ulimit -n"},
    {"Watchdog caught collective operation timeout", kWaits},
    {"Timed out waiting", kWaits},
    {"wait timeout", kWaits},
    {"waiting for clients", kWaits},
    {"client socket has timed out", kUnreachable},
    {"client socket has failed to connect", kUnreachable},
    {"DistStoreError", kWaits},
    {"Connection closed by peer", kPeerGone},
    {"ncclRemoteError", kPeerGone},
    // Not "NCCL" alone, which it writes when all is well.
    {"NCCL error", kNccl},
    {"NCCL Error", kNccl},
    {"NCCL failure", kNccl},
};

// PyTorch's exception hook writes "[rank1]: " before each line of a traceback.
std::string without_rank(const std::string& line) {
  if (!line.starts_with("[rank")) return line;
  const size_t end = line.find("]: ");
  return end == line.npos ? line : line.substr(end + 3);
}

// "ValueError: boom", "torch.OutOfMemoryError: …", "KeyboardInterrupt": a name at the start of the line.
bool is_exception(const std::string& line) {
  const size_t end = std::min(line.find_first_of(": "), line.size());
  const auto is_name = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; };
  return end > 0 && std::isalpha(static_cast<unsigned char>(line[0])) && (end == line.size() || line[end] == ':') &&
         std::all_of(line.begin(), line.begin() + static_cast<ptrdiff_t>(end), is_name);
}

std::string python_error(const std::vector<std::string>& lines) {
  static constexpr char kStart[] = "Traceback (most recent call last):";
  const auto starts = [](const std::string& line) { return without_rank(line) == kStart; };
  const auto start = std::find_if(lines.rbegin(), lines.rend(), starts).base();
  if (start == lines.begin()) return "";
  const auto end = std::find_if(start, lines.end(), [](const std::string& line) { return is_exception(without_rank(line)); });
  return end == lines.end() ? "" : without_rank(*end);
}

// What std::terminate writes of an uncaught exception. LibTorch's go on for pages of stack frames.
std::string cxx_error(const std::vector<std::string>& lines) {
  static constexpr std::string_view kStart = "  what():  ";
  const auto line = std::find_if(lines.rbegin(), lines.rend(), [](const std::string& line) { return line.starts_with(kStart); });
  return line == lines.rend() ? "" : line->substr(kStart.size());
}

}  // namespace

bool killed_for_memory(const JobOutcome& job) {
  const RankOutcome& culprit = job.ranks[*job.culprit];
  return job.oom_kills > 0 && culprit.status && culprit.status->shell_code() == 128 + SIGKILL;
}

std::string describe_culprits_end(const JobOutcome& job) {
  const RankOutcome& culprit = job.ranks[*job.culprit];
  if (culprit.silent_for) {
    const auto as_far = std::count_if(job.ranks.begin(), job.ranks.end(), [&](const RankOutcome& rank) {
      return rank.last_step == culprit.last_step && rank.asked_to_end;
    });
    return fmt::format("hung: no heartbeat for {:.1f} s{}", static_cast<double>(culprit.silent_for->count()) / 1000,
                       as_far > 1 ? "; others came as far as it did, so that it may be one of them" : "");
  }
  const bool is_vla_worker = std::filesystem::path(job.program).filename() == "vla_worker";
  const std::string how = culprit.status ? describe(*culprit.status, is_vla_worker) : "still running";
  if (!killed_for_memory(job)) return how;
  return fmt::format("{} (killed by the kernel: out of memory)", how.substr(0, how.find(" (")));
}

std::string culprits_error(const JobOutcome& job) {
  const RankOutcome& culprit = job.ranks[*job.culprit];
  if (!culprit.error.message.empty()) return culprit.error.message;
  const std::string error = python_error(culprit.last_lines);
  return error.empty() ? cxx_error(culprit.last_lines) : error;
}

std::string find_remedy(const JobOutcome& job) {
  const RankOutcome& culprit = job.ranks[*job.culprit];
  if (killed_for_memory(job)) return kMainMemory;
  if (culprit.silent_for) {
    return "it is stuck, or a step takes longer than --hang-timeout: py-spy dump or gdb -p shows where, before the time is up";
  }
  const std::string error = culprits_error(job);
  for (const Remedy& row : kRemedies) {
    if (error.find(row.text) != error.npos) return row.remedy;
  }
  for (const Remedy& row : kRemedies) {
    for (const std::string& line : culprit.last_lines) {
      if (line.find(row.text) != line.npos) return row.remedy;
    }
  }
  const int code = culprit.status ? culprit.status->shell_code() : 0;
  if (code == 126) return "chmod +x makes a file executable; a script also needs a first line such as #!/bin/sh";
  if (code == 127) return "check its spelling and PATH; ldd PROGRAM lists the libraries that it misses";
  return "";
}

}  // namespace cxxrun
