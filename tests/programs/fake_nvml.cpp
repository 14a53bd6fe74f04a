// Stands in for libnvidia-ml: one GPU, at 0000:3b:00.0, that draws a watt more with every query and does not tell its utilisation
// from the second query on.
#include <csignal>
#include <cstring>

extern "C" {

bool fake_nvml_init_had_signals_blocked = false;
int fake_nvml_running = 0;

int nvmlInit_v2() {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  fake_nvml_init_had_signals_blocked = sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGUSR1) == 1;
  ++fake_nvml_running;
  return 0;
}

int nvmlShutdown() {
  --fake_nvml_running;
  return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  static int queries = 0;
  *device = &queries;
  return std::strcmp(bus_id, "0000:3b:00.0") == 0 ? 0 : 6;
}

int nvmlDeviceGetUtilizationRates(const int* queries, unsigned* gpu_and_memory) {
  gpu_and_memory[0] = 97;
  gpu_and_memory[1] = 40;
  return *queries > 0 ? 3 : 0;
}

int nvmlDeviceGetMemoryInfo_v2(const void*, void* memory) {
  struct Memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
  };
  auto& answer = *static_cast<Memory*>(memory);
  if (answer.version != (sizeof(Memory) | 2U << 24)) return 25;
  answer = {answer.version, 80ULL << 30, 1ULL << 30, 59ULL << 30, 20ULL << 30};
  return 0;
}

int nvmlDeviceGetPowerUsage(int* queries, unsigned* milliwatts) {
  *milliwatts = 400'000U + 1000U * static_cast<unsigned>((*queries)++);
  return 0;
}
}
