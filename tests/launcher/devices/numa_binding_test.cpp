#include "launcher/devices/numa_binding.hpp"

#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temp_dir.hpp"

namespace cxxrun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Two sockets of two nodes of four cores with two threads each. Node n has the CPUs 4n..4n+3 and their siblings, 16 higher;
// each pair of neighbouring cores shares a last cache.
class NumaBindingTest : public ::testing::Test {
 protected:
  NumaBindingTest() {
    write("devices/system/node/online", "0-3");
    for (int node = 0; node < 4; ++node) {
      write(fmt::format("devices/system/node/node{}/cpulist", node),
            fmt::format("{}-{},{}-{}", 4 * node, 4 * node + 3, 4 * node + 16, 4 * node + 19));
    }
    for (int cpu = 0; cpu < 32; ++cpu) {
      const int core = cpu % 16, pair = core / 2 * 2;
      const std::string folder = fmt::format("devices/system/cpu/cpu{}/", cpu);
      write(folder + "topology/physical_package_id", std::to_string(core / 8));
      write(folder + "topology/thread_siblings_list", fmt::format("{},{}", core, core + 16));
      write_cache(folder + "cache/index0/", "Data", 1, fmt::format("{},{}", core, core + 16));
      write_cache(folder + "cache/index1/", "Instruction", 9, "0-31");
      write_cache(folder + "cache/index3/", "Unified", 3,
                  fmt::format("{}-{},{}-{}", pair, pair + 1, pair + 16, pair + 17));
      allowed_.insert(cpu);
    }
  }

  void write(const std::string& name, const std::string& text) {
    const auto file = sysfs_.path() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }

  void write_cache(const std::string& folder, const std::string& type, int level, const std::string& cpus) {
    write(folder + "type", type);
    write(folder + "level", std::to_string(level));
    write(folder + "shared_cpu_list", cpus);
  }

  void add_gpus(const std::vector<int>& nodes) {
    std::string addresses;
    for (const int node : nodes) {
      const std::string address = fmt::format("0000:{:02x}:00.0", 16 + gpus_++);
      write(fmt::format("bus/pci/devices/{}/numa_node", address), std::to_string(node));
      addresses += (addresses.empty() ? "" : ",") + address;
    }
    variables_["CXXRUN_FAKE_GPUS"] = addresses;
  }

  std::vector<CpuPlacement> place(NumaBinding binding, int ranks) const {
    const Environment environment = [this](const std::string& name) {
      const auto found = variables_.find(name);
      return found == variables_.end() ? std::nullopt : std::optional(found->second);
    };
    return place_ranks(binding, ranks, environment, CpuTopology(sysfs_.path(), allowed_));
  }

  std::string refusal(NumaBinding binding, int ranks) const {
    return message_of<UsageError>([&] { place(binding, ranks); });
  }

  TempDir sysfs_;
  CpuSet allowed_;
  std::map<std::string, std::string> variables_{{"CXXRUN_FAKE_GPUS", "0"}};
  int gpus_ = 0;
};

using Placements = std::vector<CpuPlacement>;

TEST_F(NumaBindingTest, NodeIsAllOfTheNodeOfTheRanksGpu) {
  add_gpus({3, 0});
  EXPECT_EQ(place(NumaBinding::kNode, 2), (Placements{{{12, 13, 14, 15, 28, 29, 30, 31}, {3}},
                                                      {{0, 1, 2, 3, 16, 17, 18, 19}, {0}}}));
}

TEST_F(NumaBindingTest, SocketIsAllNodesOfTheSocket) {
  add_gpus({3});
  EXPECT_EQ(place(NumaBinding::kSocket, 1),
            (Placements{{{8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31}, {2, 3}}}));
}

TEST_F(NumaBindingTest, ExclusiveCutsTheCoresOfANodeAmongItsGpusTheFirstOnesGetOneMore) {
  add_gpus({1, 0, 1, 1});
  EXPECT_EQ(place(NumaBinding::kExclusive, 4),
            (Placements{{{4, 5, 20, 21}, {1}}, {{0, 1, 2, 3, 16, 17, 18, 19}, {0}}, {{6, 22}, {1}}, {{7, 23}, {1}}}));
}

TEST_F(NumaBindingTest, ExclusiveKeepsTheShareOfGpusThatNoRankUses) {
  add_gpus({1, 1});
  EXPECT_EQ(place(NumaBinding::kExclusive, 1), (Placements{{{4, 5, 20, 21}, {1}}}));
}

TEST_F(NumaBindingTest, ExclusiveNeedsACoreAGpu) {
  add_gpus({0, 0, 0, 0, 0});
  EXPECT_THAT(refusal(NumaBinding::kExclusive, 1), AllOf(HasSubstr("5 GPUs of NUMA node 0"), HasSubstr("4 cores")));
}

TEST_F(NumaBindingTest, CoreComplexesGoRoundLargestFirst) {
  add_gpus({0, 0, 0});
  allowed_.erase(1);
  EXPECT_EQ(place(NumaBinding::kCoreComplex, 3),
            (Placements{{{2, 3, 18, 19}, {0}}, {{0, 16, 17}, {0}}, {{2, 3, 18, 19}, {0}}}));
}

TEST_F(NumaBindingTest, OnlyCpusThatThisProcessMayUseAreTaken) {
  add_gpus({0, 1});
  allowed_ = {2, 5, 18, 21, 6};
  EXPECT_EQ(place(NumaBinding::kNode, 2), (Placements{{{2, 18}, {0}}, {{5, 6, 21}, {1}}}));
  EXPECT_EQ(place(NumaBinding::kExclusive, 2), place(NumaBinding::kNode, 2));
  EXPECT_EQ(place(NumaBinding::kSocket, 1), (Placements{{{2, 5, 6, 18, 21}, {0, 1}}}));
  allowed_ = {5};
  EXPECT_THAT(refusal(NumaBinding::kNode, 1), HasSubstr("no CPU of NUMA node 0"));
}

TEST_F(NumaBindingTest, ANodeOfMinusOneIsTheFirst) {
  add_gpus({-1});
  EXPECT_EQ(place(NumaBinding::kNode, 1)[0].memory_nodes, std::vector{0});
}

TEST_F(NumaBindingTest, VisibleDevicesChooseAndOrderTheGpus) {
  add_gpus({0, 1, 2, 3});
  variables_["CUDA_VISIBLE_DEVICES"] = "2, 1";
  EXPECT_EQ(place(NumaBinding::kNode, 2)[0].memory_nodes, std::vector{2});
  EXPECT_EQ(place(NumaBinding::kNode, 2)[1].memory_nodes, std::vector{1});
}

TEST_F(NumaBindingTest, GpusThatAreMissingOrUnknownAreRefused) {
  EXPECT_THAT(refusal(NumaBinding::kNode, 1), HasSubstr("no GPU is visible"));
  add_gpus({0});
  EXPECT_THAT(refusal(NumaBinding::kSocket, 2), AllOf(HasSubstr("each of the 2 ranks"), HasSubstr("1 is visible")));
  variables_["CUDA_VISIBLE_DEVICES"] = "MIG-1";
  EXPECT_THAT(refusal(NumaBinding::kNode, 1), HasSubstr("'MIG-1'"));
  variables_["CUDA_VISIBLE_DEVICES"] = "";
  EXPECT_THAT(refusal(NumaBinding::kExclusive, 1), HasSubstr("no GPU is visible"));
}

TEST_F(NumaBindingTest, AutoIsNodeWhereThereIsSomethingToGain) {
  EXPECT_EQ(place(NumaBinding::kAuto, 2), Placements{}) << "no GPU";
  add_gpus({1, 2});
  EXPECT_EQ(place(NumaBinding::kAuto, 2), place(NumaBinding::kNode, 2));
  EXPECT_EQ(place(NumaBinding::kAuto, 3), Placements{}) << "more ranks than GPUs";
  variables_["CUDA_VISIBLE_DEVICES"] = "GPU-of-nobody";
  EXPECT_EQ(place(NumaBinding::kAuto, 1), Placements{});
  variables_.erase("CUDA_VISIBLE_DEVICES");
  write("devices/system/node/online", "0");
  EXPECT_EQ(place(NumaBinding::kAuto, 2), Placements{}) << "one node";
}

TEST_F(NumaBindingTest, WithoutAWishNothingIsLookedAt) {
  write("devices/system/node/online", "not a set");
  EXPECT_EQ(place(NumaBinding::kNone, 2), Placements{});
}

TEST_F(NumaBindingTest, WhatSysfsDoesNotTellIsNamed) {
  add_gpus({0});
  write("devices/system/node/node0/cpulist", "0-x");
  EXPECT_THAT(message_of<Error>([&] { place(NumaBinding::kNode, 1); }), HasSubstr("'0-x'"));
  std::filesystem::remove(sysfs_.path() / "devices/system/node/node0/cpulist");
  EXPECT_THAT(message_of<Error>([&] { place(NumaBinding::kNode, 1); }), HasSubstr("node0/cpulist"));
}

TEST(KernelSet, IsARangeListOfAnyLength) {
  EXPECT_EQ(parse_kernel_set("0-2,4,6-7"), (std::set{0, 1, 2, 4, 6, 7}));
  EXPECT_EQ(parse_kernel_set("5"), std::set{5});
  EXPECT_EQ(parse_kernel_set(""), std::set<int>{});
  for (const char* bad : {"a", "1-", "1 2", "1-2-3", ",1"}) EXPECT_THROW(parse_kernel_set(bad), Error) << bad;
}

}  // namespace
}  // namespace cxxrun
