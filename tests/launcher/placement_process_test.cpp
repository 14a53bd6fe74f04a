// That a rank runs where a placement says, and allocates there.
#include <sys/syscall.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "launcher/child_process.hpp"
#include "launcher/devices/cpu_topology.hpp"
#include "tests/support/launched.hpp"

namespace cxxrun {
namespace {

using ::testing::HasSubstr;
using testing::Launched;
using testing::shell_ranks;

// Exit code of a shell that was started with `placement`.
int run_placed(const CpuPlacement& placement, const std::string& script) {
  SpawnSpec spec{.path = "/bin/sh", .argv = {"sh", "-c", script}, .environment = {}, .placement = placement};
  ::sigemptyset(&spec.signal_mask);
  ChildProcess child = ChildProcess::spawn(spec);
  std::optional<ExitStatus> status;
  EXPECT_TRUE(testing::eventually([&] { return (status = child.reap()).has_value(); }));
  return status ? status->shell_code() : -1;
}

TEST(Placement, ARankMayUseItsCpusAndNoOthers) {
  for (const int cpu : allowed_cpus()) {
    EXPECT_EQ(run_placed({.cpus = {cpu}}, fmt::format("grep -Pq '^Cpus_allowed_list:\\t{}$' /proc/self/status", cpu)),
              0)
        << cpu;
  }
}

TEST(Placement, ARanksMemoryPrefersItsNodes) {
  int before = 0;
  if (::syscall(SYS_get_mempolicy, &before, nullptr, 0, nullptr, 0) != 0) GTEST_SKIP() << "no memory policies here";
  EXPECT_EQ(run_placed({.memory_nodes = {0}}, "grep -q ' prefer' /proc/self/numa_maps"), 0);
  EXPECT_EQ(run_placed({}, "grep -q ' prefer' /proc/self/numa_maps"), 1);
}

TEST(Placement, WhatTheKernelRefusesDoesNotStopTheRank) {
  EXPECT_EQ(run_placed({.cpus = {100'000}, .memory_nodes = {900}}, "exit 7"), 7);
}

TEST(Placement, NumaBindingWithoutAGpuIsRefusedUnlessItIsAuto) {
  const Launched::Options no_gpu{.environment = {"CXXRUN_FAKE_GPUS=0", "CUDA_VISIBLE_DEVICES"}};
  Launched refused(shell_ranks(2, "echo started", {"--numa-binding=node"}), no_gpu);
  EXPECT_EQ(refused.wait(), 2);
  EXPECT_THAT(refused.err(), HasSubstr("--numa-binding=node"));
  EXPECT_EQ(refused.out(), "");
  Launched automatic(shell_ranks(2, "echo started", {"--numa-binding=auto"}), no_gpu);
  EXPECT_EQ(automatic.wait(), 0) << automatic.err();
}

TEST(Placement, NumaBindingReachesTheRanks) {
  if (::access("/sys/bus/pci/devices/0000:00:00.0/numa_node", R_OK) != 0)
    GTEST_SKIP() << "no PCI device to pose as a GPU";
  if (::access("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", R_OK) != 0) GTEST_SKIP() << "no topology";
  Launched job(shell_ranks(1, "grep -q ' prefer' /proc/self/numa_maps && echo near", {"--numa-binding=node"}),
               {.environment = {"CXXRUN_FAKE_GPUS=0000:00:00.0,0000:00:00.1", "CUDA_VISIBLE_DEVICES=0"}});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.out(), "near\n");
}

TEST(Nvml, IsLoadedOnlyWhenItsAnswerIsNeeded) {
  const auto what_is_loaded = [](const std::string& ranks) {
    Launched job(shell_ranks(1, ":", {"--nproc-per-node=" + ranks}),
                 {.environment = {"LD_DEBUG=files", "CUDA_VISIBLE_DEVICES", "CXXRUN_FAKE_GPUS"}});
    job.wait();
    return job.err();
  };
  EXPECT_THAT(what_is_loaded("auto"), HasSubstr("libnvidia-ml.so.1"));
  for (const char* ranks : {"1", "cpu"})
    EXPECT_THAT(what_is_loaded(ranks), ::testing::Not(HasSubstr("libnvidia-ml"))) << ranks;
}

TEST(VirtualLocalRank, GivesEachRankItsOwnDeviceAsTheFirst) {
  const char* kScript = "echo $RANK: $LOCAL_RANK of $CUDA_VISIBLE_DEVICES";
  Launched job(shell_ranks(2, kScript, {"--virtual-local-rank"}), {.environment = {"CUDA_VISIBLE_DEVICES=GPU-b, 5"}});
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_THAT(job.out(), ::testing::AllOf(HasSubstr("0: 0 of GPU-b\n"), HasSubstr("1: 0 of 5\n")));
}

}  // namespace
}  // namespace cxxrun
