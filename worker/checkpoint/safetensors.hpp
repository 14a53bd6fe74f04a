// Reads and writes .safetensors files: an 8-byte length, a JSON header, then the tensors' bytes. Files are untrusted:
// every length, offset, shape and nesting is bounded before it is used. Written files equal those of the Python library
// byte for byte and appear atomically. Stateless. Fails with Error naming file, tensor and byte offset.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace vla {

using TensorMap = std::map<std::string, at::Tensor>;  // by name
using TextMap = std::map<std::string, std::string>;

// Contiguous CPU tensors that own their memory. dtypes F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL.
TensorMap load_safetensors(const std::filesystem::path& path);

// Tensors may live on any device, in any layout. `metadata` is what Hugging Face's tools expect of weights.
void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                      const TextMap& metadata = {{"format", "pt"}});

// Copies `stored` into the tensors of `own`, name by name, converting dtype and device. Missing, unknown and mis-shaped
// tensors, and integers for real numbers or the reverse, are one Error that begins with `what` and has their numbers and first names;
// nothing is copied then.
void copy_by_name(const TensorMap& stored, const TensorMap& own, const std::string& what);

}  // namespace vla
