#include "worker/batch.hpp"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "common/error.hpp"

namespace vla {
namespace {

using data::DType;

// Two rows: a 2x2 image, a chunk of three 2-vectors with its mask, and the index.
class MakeBatch : public testing::Test {
 protected:
  MakeBatch() {
    layout_.fields = {{"observation.image", DType::kUInt8, {2, 2, 3}, 12},
                      {"action", DType::kFloat32, {3, 2}, 24},
                      {"action_is_pad", DType::kBool, {3}, 3},
                      {"index", DType::kInt64, {}, 8}};
    const auto offsets = layout_.offsets(2);
    memory_.resize(offsets.back());
    for (size_t i = 0; i < 24; ++i) memory_[offsets[0] + i] = std::byte(i * 10);
    for (int i = 0; i < 12; ++i) put(offsets[1] + i * 4, 0.1f * static_cast<float>(i));
    memory_[offsets[2] + 5] = std::byte{1};
    put(offsets[3], int64_t{41});
    put(offsets[3] + 8, int64_t{42});
    slot_.data = memory_.data();
    slot_.batch.step = 9;
    slot_.batch.rows = {{.sample = 41, .position = 6, .is_padding = false}, {.sample = 42, .position = 7, .is_padding = true}};
  }

  template <class T>
  void put(size_t offset, T value) {
    std::memcpy(memory_.data() + offset, &value, sizeof value);
  }

  data::SampleLayout layout_;
  std::vector<std::byte> memory_;
  data::Slot slot_;
};

TEST_F(MakeBatch, GivesEveryFieldItsShapeAndValues) {
  const Batch batch = make_batch(slot_, layout_, at::kCPU);
  EXPECT_EQ(batch.step, 9);
  EXPECT_TRUE(batch.weight.equal(torch::tensor({1.0f, 0.0f})));
  EXPECT_TRUE(batch.position.equal(torch::tensor({6, 7}, at::kLong)));
  const at::Tensor& image = batch.at("observation.image");
  ASSERT_EQ(image.sizes(), at::IntArrayRef({2, 3, 2, 2}));
  EXPECT_TRUE(image.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_EQ((image[1][2][0][1].item<float>()), 170.0f / 255.0f);  // byte 12 + 3 + 2
  EXPECT_TRUE(batch.at("action").equal((torch::arange(12, at::kFloat) * 0.1f).view({2, 3, 2})));
  EXPECT_TRUE(batch.at("action_is_pad").equal(torch::tensor({0, 0, 0, 0, 0, 1}, at::kBool).view({2, 3})));
  EXPECT_TRUE(batch.at("index").equal(torch::tensor({41, 42}, at::kLong)));
}

TEST_F(MakeBatch, LeavesImagesAsBytesIfTold) {
  const at::Tensor image = make_batch(slot_, layout_, at::kCPU, at::kFloat, /*keep_bytes=*/true).at("observation.image");
  ASSERT_EQ(image.sizes(), at::IntArrayRef({2, 3, 2, 2}));
  EXPECT_EQ(image.scalar_type(), at::kByte);
  EXPECT_EQ(image[1][2][0][1].item<int>(), 170);
}

TEST_F(MakeBatch, KeepsNothingOfTheSlot) {
  const Batch batch = make_batch(slot_, layout_, at::kCPU);
  const at::Tensor before = batch.at("action").clone();
  std::ranges::fill(memory_, std::byte{0xff});
  EXPECT_TRUE(batch.at("action").equal(before));
}

TEST_F(MakeBatch, DoublesAreTheFloatsWidened) {
  const Batch narrow = make_batch(slot_, layout_, at::kCPU), wide = make_batch(slot_, layout_, at::kCPU, at::kDouble);
  for (const char* key : {"observation.image", "action"}) EXPECT_TRUE(wide.at(key).equal(narrow.at(key).to(at::kDouble)));
}

TEST_F(MakeBatch, GpuGivesTheCpusBits) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const Batch cpu = make_batch(slot_, layout_, at::kCPU), gpu = make_batch(slot_, layout_, at::Device(at::kCUDA, 0));
  for (const auto& [key, field] : cpu.fields) EXPECT_TRUE(gpu.at(key).cpu().equal(field)) << key;
  EXPECT_TRUE(gpu.weight.cpu().equal(cpu.weight));
}

TEST(Batch, NamesAMissingField) {
  try {
    Batch().at("observation.state");
    FAIL();
  } catch (const cxxrun::Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("observation.state"));
  }
}

TEST(ConvertFeatures, ChangesNumbersAndLeavesMasksWeightsAndIds) {
  Batch batch;
  batch.fields = {{"action", torch::tensor({0.1f})}, {"action_is_pad", torch::tensor({true})}, {"index", torch::tensor({int64_t{7}})}};
  batch.weight = torch::ones({1});
  convert_features(batch, torch::kBFloat16);
  EXPECT_EQ(batch.at("action").scalar_type(), torch::kBFloat16);
  EXPECT_EQ(batch.at("action_is_pad").scalar_type(), torch::kBool);
  EXPECT_EQ(batch.at("index").scalar_type(), torch::kLong);
  EXPECT_EQ(batch.weight.scalar_type(), torch::kFloat);
}

}  // namespace
}  // namespace vla
