#include "worker/data/memory_budget.hpp"

#include "tests/worker/data/support.hpp"

namespace vla::data {
namespace {

class MemoryBudget : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = dir_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    write_text(file.string(), text);
  }
  uint64_t budget() const { return memory_budget(dir_.path()); }
  TempDir dir_;
};

TEST_F(MemoryBudget, IsHalfOfWhatIsAvailable) {
  write("/proc/meminfo", "MemTotal:       24000 kB\nMemFree:  100 kB\nMemAvailable:   20000 kB\n");
  EXPECT_EQ(budget(), 20000U * 1024 / 2);
  write("/proc/self/cgroup", "0::/user/job\n");
  write("/sys/fs/cgroup/user/job/memory.max", "max\n");
  EXPECT_EQ(budget(), 20000U * 1024 / 2);
}

TEST_F(MemoryBudget, ObeysLimitsOfItsGroupAndThoseAbove) {
  write("/proc/meminfo", "MemAvailable:   20000 kB\n");
  write("/proc/self/cgroup", "0::/user/job\n");
  write("/sys/fs/cgroup/user/job/memory.max", "8000000\n");
  EXPECT_EQ(budget(), 4000000U);
  write("/sys/fs/cgroup/user/memory.max", "6000000\n");
  EXPECT_EQ(budget(), 3000000U);
  write("/sys/fs/cgroup/memory.max", "4000000\n");
  EXPECT_EQ(budget(), 2000000U);
}

TEST_F(MemoryBudget, KnowsTheFirstVersionOfCgroups) {
  write("/proc/meminfo", "MemAvailable:   20000 kB\n");
  write("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/docker/x\n1:name=systemd:/a\n");
  write("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "5000000\n");
  EXPECT_EQ(budget(), 2500000U);
}

TEST_F(MemoryBudget, IsNothingWhereNothingCanBeRead) {
  EXPECT_EQ(budget(), 0U);
  EXPECT_GT(memory_budget(), 0U) << "this machine";
}

}  // namespace
}  // namespace vla::data
