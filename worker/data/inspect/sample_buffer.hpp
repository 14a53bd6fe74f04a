// Memory for one sample and typed access to its fields. One thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "worker/data/dataset.hpp"

namespace vla::data {

class SampleBuffer {
 public:
  explicit SampleBuffer(SampleLayout layout);

  void read(SampleReader& reader, int64_t sample) { reader.read(sample, destination_); }

  const Field& field(const std::string& key) const { return layout_.fields[find(key)]; }
  std::span<const std::byte> bytes(const std::string& key) const { return bytes_[find(key)]; }
  std::vector<double> numbers(const std::string& key) const;  // of any type, row-major
  int64_t number(const std::string& key) const { return static_cast<int64_t>(numbers(key).front()); }

 private:
  size_t find(const std::string& key) const;

  SampleLayout layout_;
  std::vector<std::vector<std::byte>> bytes_;  // by field
  std::vector<std::byte*> destination_;
};

}  // namespace vla::data
