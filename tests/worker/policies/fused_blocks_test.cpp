// Fused blocks beside the ATen expressions they stand for: values, and every gradient through autograd. With CXXRUN_TEST_DEVICE=cuda, the
// kernels of a GPU.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/worker/policies/support.hpp"
#include "worker/image_ops.hpp"
#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/flow_matching.hpp"
#include "worker/policies/nn/fused_norm.hpp"
#include "worker/policies/nn/grouped_attention.hpp"
#include "worker/policies/nn/resize_pixels.hpp"
#include "worker/policies/nn/rotary.hpp"
#include "worker/policies/nn/silu_mul.hpp"

namespace vla {
namespace {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

struct Dtype {
  at::ScalarType type;
  double tolerance;
};

struct FusedBlocks : testing::Test {
  std::vector<Dtype> dtypes() const {
    if (device.is_cuda()) return {{at::kFloat, 1e-4}, {at::kBFloat16, 2e-2}};
    return {{at::kDouble, 1e-12}, {at::kFloat, 1e-5}, {at::kBFloat16, 2e-2}};
  }

  // Both functions of the same inputs; the expected one in float64. Gradients of sums weighted by fixed random numbers.
  void expect_same(const Function& fused, const Function& plain, const Tensors& inputs) {
    for (const Dtype& dtype : dtypes()) {
      const auto run = [&](const Function& function, at::ScalarType type) {
        Tensors leaves;
        for (const at::Tensor& input : inputs) leaves.push_back(input.to(dtype.type).to(device, type).detach().requires_grad_());
        Tensors results = function(leaves);
        torch::manual_seed(3);
        at::Tensor total = torch::zeros({}, at::TensorOptions(type).device(device));
        for (const at::Tensor& result : results) total = total + (result * torch::randn(result.sizes()).to(device, type)).sum();
        for (const at::Tensor& gradient : torch::autograd::grad({total}, leaves)) results.push_back(gradient);
        return results;
      };
      const Tensors actual = run(fused, dtype.type), expected = run(plain, at::kDouble);
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < actual.size(); ++i) {
        EXPECT_EQ(actual[i].scalar_type(), dtype.type);
        EXPECT_LE(relative_error(actual[i], expected[i]), dtype.tolerance) << "tensor " << i << " in " << dtype.type;
      }
    }
  }

  const at::Device device = test_device();
};

Tensors plain_norm(const Tensors& in) {
  const at::Tensor sum = in[0] + in[1];
  return {sum, in[2] * sum * (sum.square().mean(-1, true) + 1e-5).rsqrt()};
}

TEST_F(FusedBlocks, AdditionAndRmsNorm) {
  for (const int64_t width : {8, 720, 960, 2048}) {
    const auto fused = [](const Tensors& in) {
      const AddNorm result = add_rms_norm(in[0], in[1], in[2], 1e-5);
      return Tensors{result.sum, result.normalized};
    };
    expect_same(fused, plain_norm, {torch::randn({3, 37, width}), torch::randn({3, 37, width}), torch::randn({width})});
  }
}

TEST_F(FusedBlocks, RmsNormOfRowsThatTheKernelDoesNotTake) {
  const auto fused = [](const Tensors& in) {
    const AddNorm result = add_rms_norm(in[0], in[1], in[2], 1e-5);
    return Tensors{result.sum, result.normalized};
  };
  expect_same(fused, plain_norm, {torch::randn({5, 12}), torch::randn({5, 12}), torch::randn({12})});
}

TEST_F(FusedBlocks, RmsNormWithoutAnAdditionAndWithAnUnusedSum) {
  expect_same([](const Tensors& in) { return Tensors{add_rms_norm(in[0], {}, in[1], 1e-5).normalized}; },
              [](const Tensors& in) { return Tensors{in[1] * in[0] * (in[0].square().mean(-1, true) + 1e-5).rsqrt()}; },
              {torch::randn({300, 64}), torch::randn({64})});
  expect_same([](const Tensors& in) { return Tensors{add_rms_norm(in[0], in[1], in[2], 1e-5).normalized}; },
              [](const Tensors& in) { return Tensors{plain_norm(in)[1]}; }, {torch::randn({5, 64}), torch::randn({5, 64}), torch::randn({64})});
}

TEST_F(FusedBlocks, LayerNormOfASumWithAnOffset) {
  for (const Dtype& dtype : dtypes()) {
    const auto make = [&](at::IntArrayRef shape) { return torch::randn(shape).to(device, dtype.type); };
    const at::Tensor x = make({77, 768}) + 3, offset = make({768}), weight = make({768}), bias = make({768});
    const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
    const at::Tensor expected = at::layer_norm(wide(x) + wide(offset), {768}, wide(weight), wide(bias), 1e-6);
    EXPECT_LE(relative_error(offset_layer_norm(x, offset, weight, bias, 1e-6), expected), dtype.tolerance);
  }
}

TEST_F(FusedBlocks, SiluTimesTheOtherHalf) {
  const auto plain = [](const Tensors& in) {
    const auto halves = in[0].chunk(2, -1);
    return Tensors{at::silu(halves[0]) * halves[1]};
  };
  const auto fused = [](const Tensors& in) {
    const auto halves = in[0].chunk(2, -1);
    return Tensors{silu_mul(halves[0], halves[1])};
  };
  expect_same(fused, plain, {torch::randn({33, 2 * 136}) * 3});
  expect_same(fused, plain, {torch::randn({33, 2 * 12})});  // not the kernel's
  expect_same([](const Tensors& in) { return Tensors{silu_mul(in[0], in[1])}; }, [](const Tensors& in) { return Tensors{at::silu(in[0]) * in[1]}; },
              {torch::randn({9, 64}), torch::randn({9, 64})});
}

TEST_F(FusedBlocks, RotatedQueriesAndKeys) {
  const at::Tensor of_each_row = torch::tensor({{3, 4, 5, 6, 7}, {0, 1, 2, 2, 9}}, at::kLong).to(device), of_all = of_each_row.slice(0, 0, 1);
  for (const at::Tensor& positions : {of_each_row, of_all}) {
    for (const int64_t width : {16, 12}) {  // in chunks of pairs, and in single ones
      const RotaryTable table = rotary_table(positions, width, 10000);
      const auto rotated = [&](const Tensors& in, bool fast) {
        const FastModeScope mode(fast);
        const auto parts = in[0].split_with_sizes({6 * width, 2 * width, 2 * width}, -1);
        const at::Tensor queries = parts[0].unflatten(-1, {6, width});
        const Rotated result = rotate_heads(queries, parts[1].unflatten(-1, {2, width}), table, 2);
        return Tensors{result.query, result.key, rotate_heads(queries, {}, table, 2).query};
      };
      expect_same([&](const Tensors& in) { return rotated(in, true); }, [&](const Tensors& in) { return rotated(in, false); }, {torch::randn({2, 5, 10 * width})});
    }
  }
}

TEST_F(FusedBlocks, AttentionOfGroupsWithMasks) {
  const at::Tensor keys = (torch::rand({2, 1, 13}) > 0.3).to(device), pairs = (torch::rand({2, 5, 13}) > 0.3).to(device);
  keys.select(2, 0).fill_(true);
  pairs.select(2, 3).fill_(true);
  for (const at::Tensor& visible : {keys, pairs}) {
    const AttentionMask mask(visible);
    const auto attend = [&](const Tensors& in, bool fast) {
      const FastModeScope mode(fast);
      return Tensors{grouped_attention(in[0].unflatten(2, {2, 3}), {in[1], in[2]}, mask)};
    };
    expect_same([&](const Tensors& in) { return attend(in, true); }, [&](const Tensors& in) { return attend(in, false); },
                {torch::randn({2, 5, 6, 16}), torch::randn({2, 13, 2, 16}), torch::randn({2, 13, 2, 16})});
  }
}

TEST_F(FusedBlocks, FlowMatchingsInputAndLoss) {
  const at::Tensor is_pad = (torch::rand({3, 7}) > 0.6).to(device), weight = torch::tensor({1, 0, 1}, at::kFloat).to(device);
  const at::Tensor actions = torch::randn({3, 7, 5}), noise = torch::randn({3, 7, 8}), time = torch::rand({3});
  for (const Dtype& dtype : dtypes()) {
    const at::ScalarType real = dtype.type == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor own = actions.to(device, dtype.type), padded = at::constant_pad_nd(own.to(at::kDouble), {0, 3});
    const at::Tensor noises = noise.to(device, real), times = time.to(device, real);
    const at::Tensor share = times.to(at::kDouble).view({3, 1, 1});
    EXPECT_LE(relative_error(flow_input(own, noises, times), share * noises + (1 - share) * padded), dtype.tolerance);

    const at::Tensor velocity = torch::randn({3, 7, 8}).to(device, dtype.type).requires_grad_(), scales = torch::tensor({0.5, -2.0, 1.5}, real).to(device);
    const at::Tensor sums = flow_loss_sums(velocity, own, noises, is_pad, weight);
    const at::Tensor exact = velocity.detach().to(at::kDouble).requires_grad_();
    const at::Tensor error = (noises - padded - exact).square() * weight.view({3, 1, 1}), of_actions = error.slice(2, 0, 5);
    const at::Tensor expected = at::stack({(of_actions * is_pad.logical_not().unsqueeze(2)).sum(), of_actions.sum(), error.sum()});
    EXPECT_LE(relative_error(sums, expected), 1e-5);
    const at::Tensor gradient = torch::autograd::grad({(sums * scales).sum()}, {velocity})[0];
    EXPECT_LE(relative_error(gradient, torch::autograd::grad({(expected * scales).sum()}, {exact})[0]), dtype.tolerance);
  }
}

TEST_F(FusedBlocks, ResizedPaddedAndScaledImages) {
  for (const Dtype& dtype : dtypes()) {
    const auto images = [&](int64_t height, int64_t width) { return torch::rand({2, 3, height, width}).to(device, dtype.type); };
    const at::Tensor wide = images(50, 90), tall = images(70, 33).contiguous(at::MemoryFormat::ChannelsLast), same = images(64, 64);
    std::vector<at::Tensor> expected;
    for (const at::Tensor& image : {wide, tall, same}) expected.push_back(resize_with_pad(image.to(at::kDouble), 64, 64, PadPlace::kLeftTop) * 2 - 1);
    const at::Tensor actual = resize_cameras({wide, tall, same}, 64, 64, dtype.type);
    EXPECT_TRUE(actual.is_contiguous());
    EXPECT_LE(relative_error(actual, at::cat(expected)), dtype.tolerance);

    const at::Tensor bytes = at::randint(256, {2, 50, 90, 3}, at::TensorOptions(at::kByte).device(device)).movedim(3, 1), numbers = images_to_float(bytes);
    const at::Tensor of_bytes = resize_cameras({bytes}, 64, 64, dtype.type);
    EXPECT_EQ(of_bytes.scalar_type(), dtype.type);
    if (dtype.type == at::kBFloat16) {
      EXPECT_LE(relative_error(of_bytes, resize_cameras({numbers}, 64, 64, at::kFloat)), 0.004);
    } else {
      EXPECT_TRUE(of_bytes.equal(resize_cameras({numbers.to(dtype.type)}, 64, 64, dtype.type)));
    }
  }
}

}  // namespace
}  // namespace vla
