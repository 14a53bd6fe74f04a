#include "launcher/devices/cgroup.hpp"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/temp_dir.hpp"

namespace cxxrun {
namespace {

class Cgroup : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const auto file = folder_.path() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  TempDir folder_;
  const CgroupSource source_{.groups = folder_.path() / "groups", .mount = folder_.path() / "mount"};
};

TEST_F(Cgroup, TheTightestQuotaOfVersionTwoCounts) {
  write("groups", "0::/slice/job\n");
  write("mount/cpu.max", "max 100000\n");
  write("mount/slice/cpu.max", "400000 100000\n");
  write("mount/slice/job/cpu.max", "250000 100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpu_quota(source_), 2.5);
  write("mount/slice/cpu.max", "150000 100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpu_quota(source_), 1.5) << "a limit of a group above holds too";
}

TEST_F(Cgroup, MaxIsNoQuota) {
  write("groups", "0::/job\n");
  write("mount/job/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(source_), INFINITY);
}

TEST_F(Cgroup, VersionOneHasAFolderAController) {
  write("groups", "5:memory:/other\n4:cpu,cpuacct:/job\n1:name=systemd:/job\n");
  write("mount/cpu/job/cpu.cfs_quota_us", "300000\n");
  write("mount/cpu/job/cpu.cfs_period_us", "100000\n");
  write("mount/cpu/other/cpu.cfs_quota_us", "100000\n");
  write("mount/cpu/other/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpu_quota(source_), 3.0);
  write("mount/cpu/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cgroup_cpu_quota(source_), INFINITY);
}

TEST_F(Cgroup, AGroupThatIsNotMountedHereFallsBackToTheOnesAbove) {
  write("groups", "0::/docker/0123\n");
  write("mount/cpu.max", "200000 100000\n");
  EXPECT_DOUBLE_EQ(cgroup_cpu_quota(source_), 2.0);
}

TEST_F(Cgroup, OomKillsAreCountedInBothVersions) {
  write("groups", "0::/job\n");
  write("mount/job/memory.events", "low 0\nhigh 0\nmax 12\noom 2\noom_kill 3\noom_group_kill 0\n");
  EXPECT_EQ(cgroup_oom_kills(source_), 3);
  write("groups", "7:memory:/job\n");
  write("mount/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
  EXPECT_EQ(cgroup_oom_kills(source_), 4);
}

TEST_F(Cgroup, WhatCannotBeReadLimitsNothing) {
  EXPECT_EQ(cgroup_cpu_quota(source_), INFINITY);
  EXPECT_EQ(cgroup_oom_kills(source_), 0);
  write("groups", "garbage\n0::\n");
  write("mount/cpu.max", "many\n");
  EXPECT_EQ(cgroup_cpu_quota(source_), INFINITY);
}

}  // namespace
}  // namespace cxxrun
