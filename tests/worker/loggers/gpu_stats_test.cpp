#include "worker/gpu_stats.hpp"

#include <dlfcn.h>

#include <cmath>

#include <gtest/gtest.h>

namespace vla {
namespace {

constexpr char kBusId[] = "0000:3b:00.0";

TEST(GpuMonitor, ReadsAtMostOnceASecondAndStopsNvmlInTheEnd) {
  void* fake = ::dlopen(FAKE_NVML, RTLD_NOW);
  ASSERT_NE(fake, nullptr) << ::dlerror();
  const auto& running = *static_cast<const int*>(::dlsym(fake, "fake_nvml_running"));
  {
    GpuMonitor monitor(kBusId, FAKE_NVML);
    EXPECT_EQ(running, 1);
    for (int i = 0; i < 3; ++i) {
      const auto stats = monitor.read();
      ASSERT_TRUE(stats);
      EXPECT_EQ(stats->utilisation, 97);
      EXPECT_EQ(stats->memory_gb, 20);
      EXPECT_EQ(stats->power_w, 400);
    }
  }
  EXPECT_EQ(running, 0);
  EXPECT_TRUE(*static_cast<const bool*>(::dlsym(fake, "fake_nvml_init_had_signals_blocked")));
  ::dlclose(fake);
}

TEST(GpuMonitor, WhatTheDriverDoesNotTellIsNaN) {
  void* fake = ::dlopen(FAKE_NVML, RTLD_NOW);  // keeps its count of queries
  GpuMonitor(kBusId, FAKE_NVML).read();
  const auto stats = GpuMonitor(kBusId, FAKE_NVML).read();
  ::dlclose(fake);
  ASSERT_TRUE(stats);
  EXPECT_TRUE(std::isnan(stats->utilisation));
  EXPECT_EQ(stats->memory_gb, 20);
}

TEST(GpuMonitor, KnowsNothingWithoutTheLibraryOrOfAnotherDevice) {
  EXPECT_FALSE(GpuMonitor(kBusId, "libno-such-library.so").read());
  EXPECT_FALSE(GpuMonitor("0000:99:00.0", FAKE_NVML).read());
  EXPECT_FALSE(GpuMonitor("", FAKE_NVML).read());
}

}  // namespace
}  // namespace vla
