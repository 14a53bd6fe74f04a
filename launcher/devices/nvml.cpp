#include "launcher/devices/nvml.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <sstream>

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "launcher/devices/device_list.hpp"

namespace cxxrun {
namespace {

constexpr int kPatienceMilliseconds = 30'000;  // many GPUs without the persistence daemon take seconds

using Device = void*;

struct PciInfo {  // nvmlPciInfo_t
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

class Nvml {
 public:
  Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    ready_ = library_ && call("nvmlInit_v2");
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (ready_) call("nvmlShutdown");
    if (library_) ::dlclose(library_);
  }

  unsigned count() const {
    unsigned devices = 0;
    return ready_ && call("nvmlDeviceGetCount_v2", &devices) ? devices : 0;
  }

  std::string address_of(const std::string& token) const {
    PciInfo info{};
    const Device device = ready_ ? find(token) : nullptr;
    if (!device || !call("nvmlDeviceGetPciInfo_v3", device, &info)) return "";
    return fmt::format("{:04x}:{:02x}:{:02x}.0", info.domain, info.bus, info.device);
  }

 private:
  // All functions of NVML return 0 for success.
  template <class... Arguments>
  bool call(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library_, name));
    return function && function(arguments...) == 0;
  }

  Device find(const std::string& token) const {
    Device device = nullptr;
    if (const auto ordinal = parse_python_int(token)) {
      return call("nvmlDeviceGetHandleByIndex_v2", static_cast<unsigned>(*ordinal), &device) ? device : nullptr;
    }
    if (token.starts_with("MIG-GPU-")) return find(token.substr(4, token.find('/') - 4));  // drivers before 470
    if (token.starts_with("MIG-")) {
      Device parent = nullptr;
      const bool found = call("nvmlDeviceGetHandleByUUID", token.c_str(), &device) &&
                         call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", device, &parent);
      return found ? parent : nullptr;
    }
    for (unsigned index = 0, end = count(); index < end; ++index) {
      char uuid[96] = {};
      if (call("nvmlDeviceGetHandleByIndex_v2", index, &device) &&
          call("nvmlDeviceGetUUID", device, &uuid[0], static_cast<unsigned>(sizeof uuid)) &&
          std::string(uuid).starts_with(token)) {
        return device;
      }
    }
    return nullptr;
  }

  void* library_;
  bool ready_ = false;
};

// NVML starts a thread that it never ends and that has our signals unblocked, keeps descriptors open, and may wait for a driver
// that does not answer: so it is another process that asks. The answer is text.
std::string ask(const std::function<std::string(const Nvml&)>& question) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw errno_error("cannot create a pipe to ask for GPUs");
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) throw errno_error("cannot fork to ask for GPUs");
  if (pid == 0) {
    const std::string answer = question(Nvml());
    ::_exit(::write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size()) ? 0 : 1);
  }
  writer.reset();
  std::string answer;
  pollfd waiting{.fd = reader.get(), .events = POLLIN, .revents = 0};
  for (ssize_t size = 1; size > 0;) {
    char buffer[4096];
    const bool answers = ::poll(&waiting, 1, kPatienceMilliseconds) == 1;
    if (!answers) ::kill(pid, SIGKILL);  // a process that waits in the driver may outlast even that: it is not waited for
    if (!answers) throw Error("the NVIDIA driver does not answer (nvidia-smi would wait too): give --nproc-per-node a number");
    size = ::read(reader.get(), buffer, sizeof buffer);
    if (size > 0) answer.append(buffer, static_cast<size_t>(size));
  }
  ::waitpid(pid, nullptr, 0);
  return answer;
}

// CXXRUN_FAKE_GPUS as addresses, unknown ones for a count.
std::vector<std::string> fake_gpus(const std::string& text) {
  const auto count = parse_python_int(text);
  return count ? std::vector<std::string>(static_cast<size_t>(std::max(0, *count))) : device_tokens(text);
}

}  // namespace

int count_installed_gpus(const Environment& environment) {
  if (const auto fake = environment("CXXRUN_FAKE_GPUS")) return static_cast<int>(fake_gpus(*fake).size());
  return parse_python_int(ask([](const Nvml& nvml) { return std::to_string(nvml.count()); })).value_or(0);
}

int count_gpu_files(const Environment& environment) {
  if (environment("CXXRUN_FAKE_GPUS")) return count_installed_gpus(environment);
  int files = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {  // nvidia0, but not nvidiactl
    const std::string name = entry.path().filename();
    if (name.starts_with("nvidia") && parse_python_int(name.substr(6))) ++files;
  }
  return files;
}

std::vector<std::string> pci_addresses(const std::vector<std::string>& tokens, const Environment& environment) {
  std::vector<std::string> addresses;
  if (const auto fake = environment("CXXRUN_FAKE_GPUS")) {
    const std::vector<std::string> gpus = fake_gpus(*fake);
    for (const std::string& token : tokens) {
      const auto ordinal = parse_python_int(token);
      const bool known = ordinal && *ordinal >= 0 && static_cast<size_t>(*ordinal) < gpus.size();
      addresses.push_back(known ? gpus[static_cast<size_t>(*ordinal)] : "");
    }
    return addresses;
  }
  std::istringstream lines(ask([&](const Nvml& nvml) {
    std::string text;
    for (const std::string& token : tokens) text += nvml.address_of(token) + "\n";
    return text;
  }));
  for (std::string line; std::getline(lines, line);) addresses.push_back(line);
  addresses.resize(tokens.size());
  return addresses;
}

}  // namespace cxxrun
