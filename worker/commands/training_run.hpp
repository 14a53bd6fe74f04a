// What every command that trains does before it has a Trainer: ranks are started or counted, they meet, and the device is theirs.
#pragma once

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "common/control_channel.hpp"
#include "common/worker_env.hpp"
#include "worker/commands/command.hpp"
#include "worker/distributed/process_group.hpp"
#include "worker/train_config.hpp"

namespace vla {

// The folder of this program.
std::filesystem::path own_folder();

// Holds --world_size against the launcher's. Without a launcher, more than one rank become `cxxrun --nproc_per_node N <this command>`,
// and this does not return.
void take_place_among_ranks(const TrainConfig& config, const cxxrun::WorkerEnv& env, const char* command, Arguments arguments);

// The ranks, and the stream that everything runs on.
struct TrainingWorld {
  TrainingWorld(const TrainConfig& config, const cxxrun::WorkerEnv& env);

  const cxxrun::World world;
  // One stream of our own for everything: the legacy default stream would keep a step from being captured as a graph.
  const c10::impl::VirtualGuardImpl streams;
  const c10::StreamGuard on_stream;
  cxxrun::ControlChannel launcher;
};

}  // namespace vla
