#include "worker/data/dataset.hpp"

namespace vla::data {

size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kBool:
      return 1;
    case DType::kInt64:
      return 8;
    case DType::kFloat32:
      return 4;
  }
  return 0;
}

std::vector<size_t> SampleLayout::offsets(int64_t rows) const {
  constexpr size_t kAlignment = 64;
  std::vector<size_t> result = {0};
  for (const Field& field : fields) {
    const size_t end = result.back() + field.bytes_per_row * static_cast<size_t>(rows);
    result.push_back((end + kAlignment - 1) / kAlignment * kAlignment);
  }
  return result;
}

}  // namespace vla::data
