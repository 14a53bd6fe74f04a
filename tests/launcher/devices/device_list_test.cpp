#include "launcher/devices/device_list.hpp"

#include <sched.h>

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "tests/support/message_of.hpp"

namespace cxxrun {
namespace {

using Strings = std::vector<std::string>;

Environment variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(DeviceList, TokensAreOpaqueAndEndWhereCudaStops) {
  const std::pair<std::string, Strings> kCases[] = {
      {"2,5", {"2", "5"}},
      {"GPU-89,GPU-ab", {"GPU-89", "GPU-ab"}},
      {"MIG-1,MIG-2", {"MIG-1", "MIG-2"}},
      {" 0 , 1 ", {"0", "1"}},
      {"", {}},
      {"-1", {}},
      {"0,,1", {"0"}},
      {"0,-1,2", {"0"}},
      {"1,1", {}},
      {"NoDevFiles", {"NoDevFiles"}},
  };
  for (const auto& [list, tokens] : kCases) EXPECT_EQ(device_tokens(list), tokens) << list;
}

TEST(DeviceList, GpuCountsTokensElseDevices) {
  const std::pair<std::map<std::string, std::string>, int> kCases[] = {
      {{{"CXXRUN_FAKE_GPUS", "3"}}, 3},
      {{{"CXXRUN_FAKE_GPUS", "8"}, {"CUDA_VISIBLE_DEVICES", "2,5"}}, 2},
      {{{"CXXRUN_FAKE_GPUS", "4"}, {"CUDA_VISIBLE_DEVICES", "2,5,1"}}, 1},  // there is no 5: the list ends
      {{{"CXXRUN_FAKE_GPUS", "8"}, {"CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c"}}, 3},
  };
  for (const auto& [values, ranks] : kCases) {
    EXPECT_EQ(count_local_ranks("gpu", variables(values)), ranks);
    EXPECT_EQ(count_local_ranks("auto", variables(values)), ranks);
  }
}

TEST(DeviceList, AutoWithoutGpusIsTheUsableCpus) {
  EXPECT_EQ(count_local_ranks("auto", variables({{"CXXRUN_FAKE_GPUS", "0"}})), count_usable_cpus());
  EXPECT_EQ(count_local_ranks("auto", variables({{"CXXRUN_FAKE_GPUS", "4"}, {"CUDA_VISIBLE_DEVICES", ""}})),
            count_usable_cpus());
  EXPECT_EQ(count_local_ranks("cpu", variables({})), count_usable_cpus());
}

TEST(DeviceList, UsableCpusRespectAffinity) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &before)) continue;
    CPU_SET(cpu, &one);
    break;
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(count_usable_cpus(), 1);
  ::sched_setaffinity(0, sizeof before, &before);
}

TEST(DeviceList, ANumberIsTakenUnlessAListIsShorter) {
  EXPECT_EQ(count_local_ranks(" 4 ", variables({})), 4);
  EXPECT_EQ(count_local_ranks("2", variables({{"CUDA_VISIBLE_DEVICES", "2,5"}})), 2);
  EXPECT_EQ(count_local_ranks("4", variables({{"CUDA_VISIBLE_DEVICES", ""}})), 4);
  EXPECT_EQ(count_local_ranks("4", variables({{"CUDA_VISIBLE_DEVICES", "-1"}})), 4);
  const auto message = message_of<UsageError>([] {
    count_local_ranks("3", variables({{"CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b"}}));
  });
  EXPECT_THAT(message,
              ::testing::AllOf(::testing::HasSubstr("--nproc-per-node=3"), ::testing::HasSubstr("names 2 devices")));
}

// One row per list: what `gpu` gives, or a refusal (0), and the largest number of ranks that may be asked for.
TEST(DeviceList, EveryKindOfListDrivesGpuAndBoundsTheRanks) {
  constexpr int kAny = 1000;
  struct Row {
    std::optional<std::string> list;
    int gpu;
    int most;
  };
  const Row kRows[] = {
      {std::nullopt, 8, kAny},   {"", 0, kAny},          {"-1", 0, kAny}, {"2,5", 2, 2},
      {"GPU-89,GPU-ab", 2, 2},   {"MIG-1,MIG-2", 2, 2},  {"0,,1", 1, 1},  {"MIG-GPU-5/1/0", 1, 1},
  };
  for (const Row& row : kRows) {
    std::map<std::string, std::string> values{{"CXXRUN_FAKE_GPUS", "8"}};
    if (row.list) values["CUDA_VISIBLE_DEVICES"] = *row.list;
    const Environment environment = variables(values);
    const std::string shown = row.list.value_or("(unset)");
    if (row.gpu == 0) {
      EXPECT_THROW(count_local_ranks("gpu", environment), UsageError) << shown;
    } else {
      EXPECT_EQ(count_local_ranks("gpu", environment), row.gpu) << shown;
    }
    EXPECT_EQ(count_local_ranks(std::to_string(row.most), environment), row.most) << shown;
    if (row.most == kAny) continue;
    const auto refusal = message_of<UsageError>([&] {
      count_local_ranks(std::to_string(row.most + 1), environment);
    });
    EXPECT_THAT(refusal, ::testing::AllOf(::testing::HasSubstr(fmt::format("--nproc-per-node={}", row.most + 1)),
                                          ::testing::HasSubstr(fmt::format("names {} device", row.most))));
  }
}

TEST(DeviceList, MoreRanksThanGpusIsAWarningWithBothNumbers) {
  EXPECT_EQ(few_gpus_warning("4", variables({{"CXXRUN_FAKE_GPUS", "1"}})).find("--nproc-per-node=4 but this machine has 1 GPU:"),
            0U);
  const std::pair<const char*, std::map<std::string, std::string>> kSilent[] = {
      {"1", {{"CXXRUN_FAKE_GPUS", "1"}}},
      {"4", {{"CXXRUN_FAKE_GPUS", "0"}}},
      {"cpu", {{"CXXRUN_FAKE_GPUS", "1"}}},
      {"4", {{"CXXRUN_FAKE_GPUS", "1"}, {"CUDA_VISIBLE_DEVICES", ""}}},
  };
  for (const auto& [text, values] : kSilent) EXPECT_EQ(few_gpus_warning(text, variables(values)), "") << text;
}

TEST(DeviceList, VirtualLocalRanksGetTheirOwnToken) {
  const std::pair<std::map<std::string, std::string>, Strings> kCases[] = {
      {{}, {"0", "1"}},
      {{{"CUDA_VISIBLE_DEVICES", "GPU-a, MIG-2 ,7"}}, {"GPU-a", "MIG-2"}},
      {{{"CUDA_VISIBLE_DEVICES", "3,3"}}, {"3", "3"}},
      {{{"CUDA_VISIBLE_DEVICES", ""}}, {"", ""}},  // the CPU
      {{{"CUDA_VISIBLE_DEVICES", "-1"}}, {"-1", "-1"}},
  };
  for (const auto& [values, devices] : kCases) EXPECT_EQ(rank_devices(2, variables(values)), devices);
  EXPECT_THAT(message_of<UsageError>([] { rank_devices(3, variables({{"CUDA_VISIBLE_DEVICES", "4,5"}})); }),
              ::testing::AllOf(::testing::HasSubstr("3 ranks"), ::testing::HasSubstr("CUDA_VISIBLE_DEVICES=4,5 names 2")));
}

TEST(DeviceList, ImpossibleRequestsAreUsageErrors) {
  for (const char* text : {"0", "-2", "", "two", "GPU", "xpu"})
    EXPECT_THROW(count_local_ranks(text, variables({})), UsageError) << text;
  EXPECT_THROW(count_local_ranks("gpu", variables({{"CXXRUN_FAKE_GPUS", "0"}})), UsageError);
  EXPECT_THROW(count_local_ranks("gpu", variables({{"CXXRUN_FAKE_GPUS", "2"}, {"CUDA_VISIBLE_DEVICES", ""}})),
               UsageError);
}

}  // namespace
}  // namespace cxxrun
