// The contents of a checkpoint folder in memory, between the training loop, which takes a snapshot of its tensors, and
// the thread that writes them. Paths are relative to the folder ("pretrained_model/model.safetensors").
#pragma once

#include <functional>
#include <map>
#include <string>

#include "worker/checkpoint/safetensors.hpp"

namespace vla {

struct CheckpointFiles {
  std::map<std::string, std::string> texts;
  std::map<std::string, TensorMap> tensors;
};

// Replaces every tensor by a copy on the CPU that later training steps do not touch. Waits for the GPU once.
void copy_tensors_to_host(CheckpointFiles& files);

// Writes all files into an existing folder, creating its sub-folders, and syncs them. `after_each` is called after
// every file.
void write_files(const std::filesystem::path& folder, const CheckpointFiles& files,
                 const std::function<void()>& after_each);

}  // namespace vla
