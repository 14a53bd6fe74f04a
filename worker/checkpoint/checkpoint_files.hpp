// The contents of a checkpoint folder in memory, between the training loop, which takes a snapshot of its tensors, and
// the thread that writes them. Paths are relative to the folder ("pretrained_model/model.safetensors").
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "worker/checkpoint/safetensors.hpp"

namespace vla {

struct CheckpointFiles {
  std::map<std::string, std::string> texts;
  std::map<std::string, TensorMap> tensors;

  int64_t bytes() const;
};

// Writes all files into an existing folder, creating its sub-folders, and kManifestFile, and syncs them. `after_each` is called after
// every file.
void write_files(const std::filesystem::path& folder, const CheckpointFiles& files,
                 const std::function<void()>& after_each);

// Error when the file system of `folder` has less room than `bytes` and a bit: half a checkpoint on a full disk would take from others
// what they could still have used.
void require_free_space(const std::filesystem::path& folder, int64_t bytes);
std::optional<int64_t> free_bytes(const std::filesystem::path& folder);  // nullopt: the system does not say
std::string free_space(const std::filesystem::path& folder);  // "123 MiB"

// Names and sizes of the other files: written last, it tells a whole checkpoint from one that was copied halfway.
inline constexpr char kManifestFile[] = "training_state/files.json";

// What keeps a folder from being a complete checkpoint, of ours or LeRobot's: a file that is missing or has another size, a
// .safetensors file whose header does not fit its size, JSON that cannot be parsed. Tensors are not read. nullopt = complete.
std::optional<std::string> checkpoint_problem(const std::filesystem::path& checkpoint);

}  // namespace vla
