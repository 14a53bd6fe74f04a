#include "worker/data/inspect/sample_buffer.hpp"

#include <cstring>

#include "common/error.hpp"

namespace vla::data {
namespace {

template <class Value>
std::vector<double> to_doubles(std::span<const std::byte> bytes) {
  std::vector<double> result(bytes.size() / sizeof(Value));
  for (size_t i = 0; i < result.size(); ++i) {
    Value value;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    result[i] = static_cast<double>(value);
  }
  return result;
}

}  // namespace

SampleBuffer::SampleBuffer(SampleLayout layout) : layout_(std::move(layout)) {
  for (const Field& field : layout_.fields) bytes_.emplace_back(field.bytes_per_row);
  for (std::vector<std::byte>& field : bytes_) destination_.push_back(field.data());
}

std::vector<double> SampleBuffer::numbers(const std::string& key) const {
  const size_t at = find(key);
  switch (layout_.fields[at].dtype) {
    case DType::kUInt8:
    case DType::kBool:
      return to_doubles<uint8_t>(bytes_[at]);
    case DType::kInt64:
      return to_doubles<int64_t>(bytes_[at]);
    case DType::kFloat32:
      return to_doubles<float>(bytes_[at]);
  }
  return {};
}

size_t SampleBuffer::find(const std::string& key) const {
  for (size_t i = 0; i < layout_.fields.size(); ++i) {
    if (layout_.fields[i].key == key) return i;
  }
  throw cxxrun::Error("no field '{}' was asked for", key);
}

}  // namespace vla::data
