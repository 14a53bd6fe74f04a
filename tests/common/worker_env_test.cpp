#include "common/worker_env.hpp"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/error.hpp"
#include "tests/support/message_of.hpp"

namespace cxxrun {
namespace {

using testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

// Sets the given variables and no other of the contract, and restores what was there.
class ScopedEnvironment {
 public:
  explicit ScopedEnvironment(const Variables& variables) {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
          "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE", "SLURM_NTASKS",
          "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", kControlFdVariable, kLaunchTimeVariable}) {
      before_[name] = environment_variable(name);
      ::unsetenv(name);
    }
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~ScopedEnvironment() {
    for (const auto& [name, value] : before_) {
      if (value)
        ::setenv(name.c_str(), value->c_str(), 1);
      else
        ::unsetenv(name.c_str());
    }
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

std::string error_of(const Variables& variables) {
  const ScopedEnvironment environment(variables);
  return message_of<UsageError>([] { WorkerEnv::read(); });
}

TEST(WorkerEnv, IsAWorldOfOneWithoutALauncher) {
  const ScopedEnvironment environment({});
  const WorkerEnv env = WorkerEnv::read();
  EXPECT_FALSE(env.launched);
  EXPECT_EQ(env.world_size, 1);
  EXPECT_EQ(env.rank, 0);
  EXPECT_EQ(env.control_fd, -1);
}

TEST(WorkerEnv, ReadsTheWholeContract) {
  const ScopedEnvironment environment({{"RANK", "5"},
                                       {"WORLD_SIZE", "8"},
                                       {"LOCAL_RANK", "1"},
                                       {"LOCAL_WORLD_SIZE", "4"},
                                       {"GROUP_RANK", "1"},
                                       {"MASTER_ADDR", "node0"},
                                       {"MASTER_PORT", "29500"},
                                       {"TORCHELASTIC_RESTART_COUNT", "2"},
                                       {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                       {"TORCHELASTIC_ERROR_FILE", "/tmp/e.json"},
                                       {"CXXRUN_CONTROL_FD", "7"},
                                       {"CXXRUN_LAUNCH_TIME", "1700000000"}});
  const WorkerEnv env = WorkerEnv::read();
  EXPECT_TRUE(env.launched);
  EXPECT_EQ(env.rank, 5);
  EXPECT_EQ(env.world_size, 8);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.local_world_size, 4);
  EXPECT_EQ(env.group_rank, 1);
  EXPECT_EQ(env.master_addr, "node0");
  EXPECT_EQ(env.master_port, 29500);
  EXPECT_EQ(env.restart_count, 2);
  EXPECT_TRUE(env.use_agent_store);
  EXPECT_EQ(env.error_file, "/tmp/e.json");
  EXPECT_EQ(env.control_fd, 7);
  EXPECT_EQ(env.launch_time, 1700000000);
}

TEST(WorkerEnv, ManyTasksWithoutRanksIsAnErrorThatNamesCxxrun) {
  for (const char* name : {"SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"}) {
    EXPECT_THAT(error_of({{name, "4"}}), HasSubstr(std::string(name) + "=4"));
    EXPECT_THAT(error_of({{name, "4"}}), HasSubstr("cxxrun --nproc_per_node=4"));
    const ScopedEnvironment one_task(Variables{{name, "1"}});
    EXPECT_EQ(WorkerEnv::read().world_size, 1);
  }
}

TEST(WorkerEnv, AWrongValueNamesItsVariable) {
  EXPECT_THAT(error_of({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK='x'"));
  EXPECT_THAT(error_of({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), HasSubstr("WORLD_SIZE='0'"));
  EXPECT_EQ(error_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}}), "RANK=2 must be below WORLD_SIZE=2");
  EXPECT_THAT(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("MASTER_PORT must be set"));
}

}  // namespace
}  // namespace cxxrun
