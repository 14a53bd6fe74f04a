// Weights that somebody else saved: a .safetensors file, a folder with model.safetensors, or one with shards and
// model.safetensors.index.json as Hugging Face writes them. Pickled files (.pth, .bin, .ckpt) are never read, the error names
// scripts/convert_checkpoint.py. Files are untrusted: shards must lie in the folder, JSON is bounded. Fails with Error.
#pragma once

#include <filesystem>

#include "worker/checkpoint/safetensors.hpp"

namespace vla {

// The file that holds the weights, or the index of its shards, for a user's path: a file, a folder, or a folder of checkpoints.
// UsageError when there is none.
std::filesystem::path find_weights(const std::filesystem::path& path);

TensorMap read_weights(const std::filesystem::path& path);

// Stored names that differ from `own` ones by a prefix that all of them have or lack ("module._orig_mod.", "model.") are renamed,
// with a line that says so naming `path`.
TensorMap with_fitting_prefix(TensorMap stored, const TensorMap& own, const std::string& path);

}  // namespace vla
