// What a ResNet of fast mode is made of.
#include "worker/policies/nn/channel_affine.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/worker/policies/support.hpp"
#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/folded_convolution.hpp"
#include "worker/policies/nn/resnet.hpp"

namespace vla {
namespace {

struct Images {
  explicit Images(int64_t channels, at::ScalarType dtype = at::kDouble) {
    torch::manual_seed(3);
    const auto options = at::TensorOptions(at::kDouble).device(test_device());
    const auto constant = dtype == at::kDouble ? at::kDouble : at::kFloat;
    x = channels_last(torch::randn({2, channels, 9, 12}, options).to(dtype)).requires_grad_();
    residual = channels_last(torch::randn({2, channels, 9, 12}, options).to(dtype)).requires_grad_();
    scale = torch::randn({channels}, options).to(constant);
    shift = torch::randn({channels}, options).to(constant);
  }
  at::Tensor expected() const { return x * scale.view({1, -1, 1, 1}) + shift.view({1, -1, 1, 1}); }

  at::Tensor x, residual, scale, shift;
};

void expect_equal_with_gradients(const at::Tensor& actual, const at::Tensor& expected, const std::vector<at::Tensor>& inputs, double tolerance) {
  EXPECT_LE(relative_error(actual, expected), tolerance);
  const at::Tensor gradient = torch::randn_like(expected).contiguous();  // of another layout than the images
  const auto is = torch::autograd::grad({actual}, inputs, {gradient.to(actual.scalar_type())});
  const auto should = torch::autograd::grad({expected}, inputs, {gradient});
  for (size_t i = 0; i < inputs.size(); ++i) EXPECT_LE(relative_error(is[i], should[i]), tolerance) << i;
}

TEST(ChannelAffine, IsItsFormulaWithItsGradients) {
  for (const int64_t channels : {5, 64}) {  // one by one, and in packs
    const Images images(channels);
    for (const bool relu : {false, true}) {
      const auto expected = [&](const at::Tensor& sum) { return relu ? sum.relu() : sum; };
      expect_equal_with_gradients(channel_affine(images.x, images.scale, images.shift, {}, relu), expected(images.expected()), {images.x}, 1e-14);
      expect_equal_with_gradients(channel_affine(images.x, images.scale, images.shift, images.residual, relu),
                                  expected(images.expected() + images.residual), {images.x, images.residual}, 1e-14);
    }
  }
}

TEST(ChannelAffine, OfSixteenBitsIsComputedInFloat) {
  const Images images(64, at::kBFloat16);
  const at::Tensor y = channel_affine(images.x, images.scale, images.shift, images.residual, true);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  const at::Tensor expected = (images.expected() + images.residual).relu().to(at::kBFloat16);
  EXPECT_LE(relative_error(y, expected), 0.004);
  EXPECT_GE((y == expected).to(at::kDouble).mean().item<double>(), 0.99);  // sums may differ in the last bit of float32
}

TEST(AffineReluPool, IsItsFormulaWithItsGradients) {
  for (const int64_t channels : {5, 64}) {
    const Images images(channels);
    expect_equal_with_gradients(affine_relu_pool(images.x, images.scale, images.shift), at::max_pool2d(images.expected().relu(), 3, 2, 1),
                                {images.x}, 1e-14);
  }
}

TEST(AffineReluPool, OfWhatIsNotANumberIsNotANumber) {
  Images images(4, at::kFloat);
  const torch::NoGradGuard no_grad;
  images.x.fill_(-1).index_put_({0, 1, 4, 4}, std::nan(""));
  images.scale.fill_(1);
  images.shift.fill_(0);
  EXPECT_TRUE(at::isnan(affine_relu_pool(images.x, images.scale, images.shift)[0][1][2][2]).item<bool>());
  EXPECT_TRUE(at::isnan(channel_affine(images.x, images.scale, images.shift, {}, true)[0][1][4][4]).item<bool>());
}

TEST(FoldedConvolution, IsTheConvolutionWithItsGradient) {
  torch::manual_seed(3);
  const auto options = at::TensorOptions(at::kDouble).device(test_device());
  const at::Tensor weight = torch::randn({8, 3, 7, 7}, options).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{12, 20}, {8, 6}}) {
    const at::Tensor images = torch::randn({2, 3, height, width}, options);
    expect_equal_with_gradients(folded_convolution(images, weight), at::conv2d(images, weight, {}, 2, 3), {weight}, 1e-12);
    const at::Tensor gradient = torch::autograd::grad({folded_convolution(images, weight).sum()}, {weight})[0];
    EXPECT_EQ(gradient.strides(), weight.strides());
  }
}

TEST(FoldedConvolution, IsTheFirstOfAResNetInSixteenBits) {
  ResNet18 net;
  net.to(test_device(), at::kBFloat16);
  const at::Tensor even = torch::randn({1, 3, 48, 64}).to(test_device(), at::kBFloat16), odd = even.slice(3, 0, 63);
  for (const at::Tensor& images : {even, odd}) {
    const at::Tensor expected = net.forward(images);
    const FastModeScope fast(true);
    const at::Tensor actual = net.forward(images);
    EXPECT_TRUE(actual.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_LE(relative_error(actual, expected), 0.03);
  }
}

}  // namespace
}  // namespace vla
