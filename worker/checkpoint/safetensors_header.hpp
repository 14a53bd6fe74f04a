// The front of a .safetensors file: opens it, and checks every length, offset, shape and nesting of its JSON header before
// anything is allocated or read for it. Files are untrusted. No LibTorch. Opening reads the header only, so that it is also
// the cheap way to tell a whole file from a torn one. Fails with Error naming file, tensor and byte offset.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/unique_fd.hpp"

namespace vla {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // I64 F64 F32 I32 BF16 F16 I16 I8 U8 BOOL
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // in the file
};

// `json` is the header, `file_size` the size of the whole file, which the tensors must cover without overlap or gap. Sorted
// by offset.
std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view json, int64_t file_size, const std::string& path);

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  // `destination` holds entry.end - entry.begin bytes.
  void read(const SafetensorsEntry& entry, void* destination) const;

 private:
  void read(void* destination, int64_t begin, int64_t end, const std::string& what) const;

  std::string path_;
  cxxrun::UniqueFd fd_;
  std::vector<SafetensorsEntry> entries_;
};

}  // namespace vla
