#include "worker/start_table.hpp"

#include <gmock/gmock.h>

namespace vla {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

struct StartTable : testing::Test {
  StartTable() {
    config.policy.type = "act";
    config.output_dir = "/o";
    info.config_path = "c.yaml";
    info.backend = "gloo";
    info.master_addr = "127.0.0.1";
    info.master_port = 29500;
    info.world_size = 3;
    info.devices = {"cpu", "cpu", "cpu"};
    info.dataset = "LeRobot v3.0, /d";
    info.episodes = 30;
    info.training_frames = 1832;
    info.validation_frames = 367;
    info.steps_per_epoch = 229;
    info.total_steps = 458;
    info.parameters = 12;
    info.trainable = 10;
    info.precision = "fp32";
    info.batch = resolve_batch(8, "total", 3, 1);
    info.lr = resolve_lr(1e-4, "none", 3, "total");
    info.workers = resolve_workers(-1, 3, 6);
  }
  TrainConfig config;
  StartInfo info;
};

TEST_F(StartTable, SaysWhatIsTrainedAndHow) {
  const auto lines = start_lines(config, info);
  for (const char* text : {"policy=act config=c.yaml", "3 on cpu, backend=gloo addr=127.0.0.1:29500",
                           "batch_size=8 mode=total world=3 accum=1 per_gpu=3 effective=8", "30 episodes, 1832 frames to train on, 367 held out",
                           "steps=458 = 2.00 epochs of 229 steps", "lr base=0.0001 scaling=none factor=1 final=0.0001", "precision=fp32",
                           "12 (10 trainable)", "workers per_rank=2 total=6", "output_dir=/o", "warning: training.batch_size=8"}) {
    EXPECT_THAT(lines, Contains(HasSubstr(text)));
  }
  info.world_size = 1;
  EXPECT_THAT(start_lines(config, info), Not(Contains(HasSubstr("addr="))));
}

TEST_F(StartTable, WarnsOfDifferentGpusAndOfSmallBatchesOnThem) {
  info.devices = {"cuda:0 NVIDIA A100", "cuda:1 NVIDIA A100", "cuda:2 NVIDIA A100"};
  EXPECT_THAT(start_lines(config, info), Contains(HasSubstr("3 on NVIDIA A100")));
  EXPECT_THAT(start_lines(config, info), Contains(HasSubstr("warning: each GPU computes only 3 rows")));
  EXPECT_THAT(start_lines(config, info), Not(Contains(HasSubstr("devices differ"))));
  info.devices[2] = "cuda:2 NVIDIA L40S";
  EXPECT_THAT(start_lines(config, info), Contains(HasSubstr("devices differ (cuda:0 NVIDIA A100, cuda:1 NVIDIA A100, cuda:2 NVIDIA L40S)")));
}

TEST_F(StartTable, WarnsOfAShortLastStep) {
  EXPECT_THAT(start_lines(config, info), Not(Contains(HasSubstr("do not divide"))));
  info.training_frames = 1833;
  EXPECT_THAT(start_lines(config, info), Contains(HasSubstr("warning: 1833 frames do not divide by the effective batch of 8")));
}

}  // namespace
}  // namespace vla
