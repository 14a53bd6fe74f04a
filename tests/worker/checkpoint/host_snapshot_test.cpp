#include "worker/checkpoint/host_snapshot.hpp"

#include <gmock/gmock.h>
#include <torch/torch.h>

namespace vla {
namespace {

std::vector<torch::Device> devices() {
  std::vector<torch::Device> devices{torch::kCPU};
  if (torch::cuda::is_available()) devices.emplace_back(torch::kCUDA, 0);
  return devices;
}

// More than fit one launch, of all types and layouts, at aligned and odd addresses, with and without a chunk's rest.
CheckpointFiles many_tensors(torch::Device device) {
  CheckpointFiles files;
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kHalf, torch::kLong, torch::kByte, torch::kBool}) {
    TensorMap& tensors = files.tensors[c10::toString(type)];
    const auto options = torch::dtype(type).device(device);
    for (int64_t size = 0; size < 40; ++size) tensors["small" + std::to_string(size)] = torch::randint(2, {size}, options);
    tensors["scalar"] = torch::ones({}, options);
    tensors["one more than a chunk"] = torch::randint(2, {CopyRows::kChunk + 1}, options);
    tensors["large"] = torch::randint(2, {300, 1001}, options);
    tensors["transposed"] = torch::randint(2, {30, 70}, options).t();
    tensors["channels last"] = torch::randint(2, {3, 4, 5, 6}, options).contiguous(at::MemoryFormat::ChannelsLast);
    tensors["odd address"] = torch::randint(2, {70001}, options).slice(0, 1);
    tensors["columns"] = torch::randint(2, {20, 30}, options).slice(1, 3, 9);
    tensors["expanded"] = torch::ones({1}, options).expand({1000});
    tensors["on the cpu"] = torch::randint(2, {5}, torch::dtype(type));
  }
  return files;
}

// Calls f(name, tensor of a, tensor of b).
template <class F>
void zip(const CheckpointFiles& a, const CheckpointFiles& b, const F& f) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [file, tensors] : a.tensors) {
    for (const auto& [name, tensor] : tensors) f(file + " " + name, tensor, b.tensors.at(file).at(name));
  }
}

TEST(HostSnapshot, HoldsEveryTensorAsItWasWhenItWasTaken) {
  for (const torch::Device device : devices()) {
    for (const int64_t most_on_gpu : {std::numeric_limits<int64_t>::max(), int64_t{0}}) {
      HostSnapshot snapshot(device, most_on_gpu);
      for (int round = 0; round < 2; ++round) {
        const CheckpointFiles live = many_tensors(device);
        CheckpointFiles expected = live, taken = live;
        for (auto& [file, tensors] : expected.tensors) {
          for (auto& [name, tensor] : tensors) tensor = tensor.to(torch::kCPU, tensor.scalar_type(), false, /*copy=*/true);
        }
        snapshot.take(taken);
        zip(live, taken, [](const std::string&, const torch::Tensor& own, const torch::Tensor&) {
          if (own.numel() > 0) own.as_strided({1}, {1}).fill_(7);
        });
        snapshot.bring_home();
        zip(expected, taken, [&](const std::string& name, const torch::Tensor& value, const torch::Tensor& copy) {
          EXPECT_TRUE(copy.is_cpu() && copy.scalar_type() == value.scalar_type() && torch::equal(copy, value)) << name << " on " << device;
        });
      }
    }
  }
}

TEST(HostSnapshot, KeepsItsMemory) {
  HostSnapshot snapshot;
  const auto copy_of = [&](const torch::Tensor& tensor) {
    CheckpointFiles files;
    files.tensors["a"]["w"] = tensor;
    snapshot.take(files);
    return files.tensors["a"]["w"];
  };
  const void* first = copy_of(torch::ones({3000})).data_ptr();
  EXPECT_EQ(copy_of(torch::ones({3000})).data_ptr(), first);
  EXPECT_EQ(copy_of(torch::ones({2})).data_ptr(), first);
  EXPECT_TRUE(torch::equal(copy_of(torch::ones({5000})), torch::ones({5000})));
}

TEST(CopyRows, ChunksCoverEveryByteOnce) {
  std::vector<std::byte> from(3 * CopyRows::kChunk + 100), to(from.size());
  CopyRows rows;
  std::vector<int> copied(from.size());
  int64_t at = 0;
  for (const int64_t size : {int64_t{0}, int64_t{1}, CopyRows::kChunk, int64_t{0}, CopyRows::kChunk + 1, CopyRows::kChunk - 1, int64_t{99}}) {
    ASSERT_TRUE(rows.add({from.data() + at, to.data() + at, size}));
    at += size;
  }
  ASSERT_EQ(at, static_cast<int64_t>(from.size()));
  EXPECT_EQ(rows.chunks(), 6u);
  for (uint32_t i = 0; i < rows.chunks(); ++i) {
    const CopyRow chunk = rows.chunk(i);
    EXPECT_EQ(chunk.from - from.data(), chunk.to - to.data());
    for (int64_t byte = 0; byte < chunk.bytes; ++byte) ++copied.at(static_cast<size_t>(chunk.from - from.data() + byte));
  }
  EXPECT_THAT(copied, testing::Each(1));
  while (rows.count < CopyRows::kMost) ASSERT_TRUE(rows.add({}));
  EXPECT_FALSE(rows.add({}));
}

}  // namespace
}  // namespace vla
