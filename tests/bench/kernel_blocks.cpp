#include "tests/bench/kernel_blocks.hpp"

#include <memory>

#include <torch/torch.h>

#include "worker/image_ops.hpp"
#include "worker/optim/optimizer.hpp"
#include "worker/policies/nn/channel_affine.hpp"
#include "worker/policies/nn/counter_random.hpp"
#include "worker/policies/nn/fast_linear.hpp"
#include "worker/policies/nn/flow_matching.hpp"
#include "worker/policies/nn/folded_convolution.hpp"
#include "worker/policies/nn/fused_norm.hpp"
#include "worker/policies/nn/group_norm_mish.hpp"
#include "worker/policies/nn/grouped_attention.hpp"
#include "worker/policies/nn/image_bytes.hpp"
#include "worker/policies/nn/latent_sample.hpp"
#include "worker/policies/nn/masked_error.hpp"
#include "worker/policies/nn/noise_scheduler.hpp"
#include "worker/policies/nn/resize_pixels.hpp"
#include "worker/policies/nn/resnet.hpp"
#include "worker/policies/nn/rotary.hpp"
#include "worker/policies/nn/silu_mul.hpp"
#include "worker/policies/nn/sync_batch_norm.hpp"
#include "worker/policies/nn/transformer_dropout.hpp"
#include "worker/policies/nn/unfold_steps.hpp"

namespace vla {
namespace {

// Makes the blocks of one batch size, dtype and device.
struct Blocks {
  int64_t rows;
  at::TensorOptions options;
  at::TensorOptions indices = options.dtype(at::kLong);
  at::Tensor is_pad = torch::zeros({rows, 100}, options.dtype(at::kBool)), weight = torch::ones({rows}, options.dtype(at::kFloat));
  StepRandom random{1, 2, torch::arange(rows, indices), torch::full({}, 2, indices)};

  at::Tensor constant(at::IntArrayRef sizes) const { return torch::randn(sizes, options); }
  at::Tensor leaf(at::IntArrayRef sizes) const { return constant(sizes).requires_grad_(); }
  at::Tensor images(at::IntArrayRef sizes) const { return constant(sizes).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_(); }
  at::Tensor bytes(at::IntArrayRef sizes) const {
    return torch::randint(256, sizes, options.dtype(at::kByte)).contiguous(at::MemoryFormat::ChannelsLast);
  }
  at::ScalarType dtype() const { return at::typeMetaToScalarType(options.dtype()); }
  template <class Module>
  std::shared_ptr<Module> on_device(std::shared_ptr<Module> module) const {
    module->to(options.device(), dtype());
    return module;
  }

  Work norm(bool fast) const {
    const at::Tensor x = leaf({rows, 50, 720}), added = leaf({rows, 50, 720}), gamma = leaf({720});
    return {{x, added, gamma}, [=]() -> Tensors {
              if (fast) {
                const auto result = add_rms_norm(x, added, gamma, 1e-5);
                return {result.sum, result.normalized};
              }
              const at::Tensor sum = x + added, wide = sum.to(at::kFloat);
              return {sum, gamma * (wide * (wide.square().mean(-1, true) + 1e-5).rsqrt()).to(sum.scalar_type())};
            }};
  }

  Work image_norm(bool fast) const {
    const at::Tensor x = constant({rows, 1024, 768}), offset = constant({768}), gamma = constant({768}), beta = constant({768});
    return {{x, offset, gamma, beta}, [=]() -> Tensors {
              return {fast ? offset_layer_norm(x, offset, gamma, beta, 1e-6) : at::layer_norm(x + offset, {768}, gamma, beta, 1e-6)};
            }};
  }

  Work silu(bool fast) const {
    const at::Tensor gate = leaf({rows * 50, 2048}), up = leaf({rows * 50, 2048});
    return {{gate, up}, [=]() -> Tensors { return {fast ? silu_mul(gate, up) : at::silu(gate) * up}; }};
  }

  Work rotary(bool) const {
    const at::Tensor query = leaf({rows, 50, 15, 64}), key = leaf({rows, 50, 5, 64});
    return {{query, key}, [=, table = rotary_table(torch::arange(50, indices).unsqueeze(0), 64, 10000)]() -> Tensors {
              const auto rotated = rotate_heads(query, key, table, 5);
              return {rotated.query, rotated.key};
            }};
  }

  Work attention(bool) const {
    const at::Tensor query = leaf({rows, 50, 5, 3, 64}), key = leaf({rows, 228, 5, 64}), value = leaf({rows, 228, 5, 64});
    const AttentionMask mask(torch::ones({rows, 50, 228}, options.dtype(at::kBool)));
    return {{query, key, value}, [=]() -> Tensors { return {grouped_attention(query, {key, value}, mask)}; }};
  }

  Work flow_input(bool fast) const {
    const at::Tensor actions = constant({rows, 50, 7}), noise = constant({rows, 50, 32}).to(at::kFloat), time = torch::rand({rows}, weight.options());
    return {{actions, noise, time}, [=]() -> Tensors {
              if (fast) return {vla::flow_input(actions, noise, time)};
              const at::Tensor t = time.view({-1, 1, 1});
              return {(t * noise + (1 - t) * at::constant_pad_nd(actions.to(at::kFloat), {0, 25})).to(actions.scalar_type())};
            }};
  }

  Work flow_loss(bool fast) const {
    const at::Tensor velocity = leaf({rows, 50, 32}), actions = constant({rows, 50, 7}), noise = constant({rows, 50, 32}).to(at::kFloat);
    return {{velocity, actions, noise}, [=, pad = is_pad.slice(1, 0, 50).contiguous(), weight = weight]() -> Tensors {
              if (fast) return {flow_loss_sums(velocity, actions, noise, pad, weight)[kValidActions]};
              const at::Tensor error = (noise - at::constant_pad_nd(actions.to(at::kFloat), {0, 25}) - velocity.to(at::kFloat)).square();
              return {(error.slice(2, 0, 7) * (pad.logical_not() * weight.unsqueeze(1)).unsqueeze(-1)).sum()};
            }};
  }

  Work normalized_bytes(bool fast) const {
    const at::Tensor image = bytes({rows, 3, 480, 640}), shift = torch::rand({3, 1, 1}, weight.options()), divisor = shift + 1;
    return {{image}, [=, dtype = dtype()]() -> Tensors {
              if (fast) return {images_from_bytes(image, shift, divisor, 0, dtype)};
              return {image.to(at::kFloat).div_(255).sub_(shift).div_(divisor).to(dtype)};
            }};
  }

  Work resize(bool fast) const {
    const at::Tensor image = bytes({rows, 3, 256, 256});
    return {{image}, [=, dtype = dtype()]() -> Tensors {
              if (fast) return {resize_cameras({image}, 512, 512, dtype)};
              return {resize_with_pad(image.to(at::kFloat).div_(255).to(dtype), 512, 512, PadPlace::kLeftTop) * 2.0 - 1.0};
            }};
  }

  Work first_convolution(bool fast) const {
    const at::Tensor image = images({rows, 3, 480, 640}).detach(), w = leaf({64, 3, 7, 7});
    return {{image, w}, [=]() -> Tensors { return {fast ? folded_convolution(image, w) : at::conv2d(image, w, {}, 2, 3)}; }};
  }

  Work frozen_norm(bool fast) const {
    const at::Tensor x = images({rows, 64, 120, 160}), residual = images({rows, 64, 120, 160});
    return {{x, residual}, [=, norm = on_device(std::make_shared<FrozenBatchNorm2d>(64))]() -> Tensors {
              const auto& affine = norm->affine(x);
              return {fast ? channel_affine(x, affine.scale, affine.shift, residual, true) : (norm->forward(x) + residual).relu_()};
            }};
  }

  Work stem(bool fast) const {
    const at::Tensor x = images({rows, 64, 240, 320});
    return {{x}, [=, norm = on_device(std::make_shared<FrozenBatchNorm2d>(64))]() -> Tensors {
              const auto& affine = norm->affine(x);
              return {fast ? affine_relu_pool(x, affine.scale, affine.shift) : at::max_pool2d(norm->forward(x).relu_(), 3, 2, 1)};
            }};
  }

  Work batch_norm(bool) const {
    const auto norm = on_device(std::make_shared<SyncBatchNorm2d>(64));
    const at::Tensor x = images({2 * rows, 64, 42, 42}), residual = images({2 * rows, 64, 42, 42});
    Tensors inputs = norm->parameters();
    inputs.insert(inputs.end(), {x, residual});
    return {inputs, [=]() -> Tensors { return {norm->forward(x, {}, residual, true)}; }};
  }

  Work image_group_norm(bool fast) const {
    const auto norm = on_device(torch::nn::GroupNorm(4, 64).ptr());
    const at::Tensor x = images({2 * rows, 64, 42, 42}), residual = images({2 * rows, 64, 42, 42});
    return {{x, residual, norm->weight, norm->bias}, [=]() -> Tensors {
              return {fast ? group_norm_relu(x, *norm, residual, true) : (norm->forward(x) + residual).relu_()};
            }};
  }

  Work group_norm(bool fast) const {
    const auto norm = on_device(torch::nn::GroupNorm(8, 512).ptr());
    const at::Tensor x = leaf(fast ? std::vector<int64_t>{rows, 16, 512} : std::vector<int64_t>{rows, 512, 16}), modulation = leaf({rows, 1024});
    return {{x, modulation, norm->weight, norm->bias}, [=]() -> Tensors {
              if (fast) return {group_norm_mish(x, *norm, modulation, {})};
              const auto halves = modulation.unsqueeze(-1).chunk(2, 1);
              return {halves[0] * at::mish(norm->forward(x)) + halves[1]};
            }};
  }

  Work convolution(bool fast) const {
    const auto layer = on_device(torch::nn::Conv1d(torch::nn::Conv1dOptions(512, 1024, 5).padding(2)).ptr());
    if (fast) layer->weight.set_data(stored_for_products(layer->weight.detach()));
    const at::Tensor x = leaf(fast ? std::vector<int64_t>{rows, 8, 512} : std::vector<int64_t>{rows, 512, 8});
    return {{x, layer->weight, layer->bias}, [=]() -> Tensors { return {fast ? convolve_steps(x, *layer) : layer->forward(x)}; }};
  }

  Work hidden(bool fast) const {
    const at::Tensor x = leaf({302, rows, 3200});
    return {{x}, [=, random = random]() -> Tensors { return {fast ? relu_dropout(x, &random, 0.1, 3) : random.dropout(x.relu(), 0.1, 3, 1)}; }};
  }

  Work dropout_norm(bool fast) const {
    const auto norm = on_device(torch::nn::LayerNorm(torch::nn::LayerNormOptions({512})).ptr());
    const at::Tensor x = leaf({302, rows, 512}), y = leaf({302, rows, 512});
    return {{x, y, norm->weight, norm->bias}, [=, random = random]() -> Tensors {
              return {fast ? add_dropout_norm(x, y, *norm, &random, 0.1, 3) : norm->forward(x + random.dropout(y, 0.1, 3, 1))};
            }};
  }

  Work latent(bool fast) const {
    const at::Tensor parameters = leaf({rows, 64}), noise = constant({rows, 32});
    return {{parameters, noise}, [=, weight = weight]() -> Tensors {
              if (fast) {
                const auto sample = sample_latent(parameters, noise, weight);
                return {sample.latent, sample.divergence};
              }
              const auto halves = parameters.chunk(2, 1);
              const at::Tensor mean = halves[0].to(at::kFloat), log_variance = halves[1].to(at::kFloat);
              const at::Tensor divergence = (1 + log_variance - mean.square() - log_variance.exp()).sum(1) * -0.5;
              return {halves[0] + (halves[1] / 2).exp() * noise, (divergence * weight).sum()};
            }};
  }

  Work masked_l1(bool fast) const {
    const at::Tensor predicted = leaf({rows, 100, 14}), actions = constant({rows, 100, 14});
    return {{predicted, actions}, [=, weight = weight, is_pad = is_pad]() -> Tensors {
              if (fast) return {masked_error_sum(predicted, actions, weight, is_pad, ErrorNorm::kAbsolute)};
              return {((actions.to(at::kFloat) - predicted.to(at::kFloat)).abs() * (is_pad.logical_not() * weight.unsqueeze(1)).unsqueeze(-1)).sum()};
            }};
  }

  Work add_noise(bool) const {
    const at::Tensor actions = constant({rows, 16, 14}), noise = constant({rows, 16, 14}), timesteps = torch::randint(100, {rows}, indices);
    return {{actions, noise}, [=, scheduler = NoiseScheduler({})]() -> Tensors { return {scheduler.add_noise(actions, noise, timesteps)}; }};
  }

  Work normal(bool fast) const {
    return {{}, [=, random = random, sizes = std::vector<int64_t>{rows, 50, 32}, options = options.dtype(at::kFloat)]() -> Tensors {
              return {fast ? random.normal(5, {50, 32}, at::kFloat) : torch::randn(sizes, options)};
            }};
  }

  Work linear(bool) const {
    const at::Tensor x = leaf({302, rows, 512}), w = leaf({3200, 512}), bias = leaf({3200});
    return {{x, w, bias}, [=]() -> Tensors { return {fast_linear(x, w, bias)}; }};
  }

  Work adamw(bool) const {
    ParameterGroup group;
    for (int i = 0; i < 64; ++i) {
      group.parameters.emplace_back(std::to_string(i), leaf({1024, 512}));
      group.parameters.back().second.mutable_grad() = constant({1024, 512});
    }
    const auto optimizer = std::make_shared<Optimizer>(std::vector{group}, OptimizerOptions{.weight_decay = 0.01, .grad_clip_norm = 1});
    const int64_t numbers = 64 * 1024 * 512, size = constant({1}).element_size();
    // The gradient twice and the parameter written; both moments and a float32 master, or the parameter, read, and all but that written.
    const int64_t bytes = numbers * (3 * size + (size == 4 ? 20 : 24));
    return {{}, [=]() -> Tensors {
              optimizer->clip_grad_norm();
              optimizer->step();
              return {};
            }, bytes};
  }
};

}  // namespace

std::vector<Block> kernel_blocks(int64_t rows, const at::TensorOptions& options) {
  const auto make = std::make_shared<const Blocks>(Blocks{.rows = rows, .options = options});
  const auto of = [&](Work (Blocks::*method)(bool) const) { return [make, method](bool fast) { return (*make.*method)(fast); }; };
  return {
      {"sum + RMS norm, 50 x 720", of(&Blocks::norm)},
      {"offset + layer norm, 1024 x 768", of(&Blocks::image_norm)},
      {"silu * up, 50 x 2048", of(&Blocks::silu)},
      {"rotary, 50 x 20 heads of 64", of(&Blocks::rotary)},
      {"attention, 50 x 15 heads over 228", of(&Blocks::attention), false},
      {"flow matching's input, 50 x 32", of(&Blocks::flow_input)},
      {"flow matching's loss, 50 x 32", of(&Blocks::flow_loss)},
      {"bytes of images, 3x480x640", of(&Blocks::normalized_bytes)},
      {"bytes of images, 256 -> 512", of(&Blocks::resize)},
      {"first convolution, 3x480x640", of(&Blocks::first_convolution), false},
      {"frozen norm + residual + relu, 64x120x160", of(&Blocks::frozen_norm)},
      {"frozen norm + relu + pool, 64x240x320", of(&Blocks::stem)},
      {"batch norm + residual + relu, 2x64x42x42", of(&Blocks::batch_norm)},
      {"group norm + residual + relu, 2x64x42x42", of(&Blocks::image_group_norm)},
      {"group norm + mish + modulation, 16 x 512", of(&Blocks::group_norm)},
      {"convolution over 8 steps, 512 -> 1024", of(&Blocks::convolution), false},
      {"relu + dropout, 302 x 3200", of(&Blocks::hidden)},
      {"dropout + sum + layer norm, 302 x 512", of(&Blocks::dropout_norm)},
      {"latent and its divergence, 32", of(&Blocks::latent)},
      {"masked L1, 100 x 14", of(&Blocks::masked_l1)},
      {"noise by timestep, 16 x 14", of(&Blocks::add_noise)},
      {"normal numbers, 50 x 32", of(&Blocks::normal)},
      {"linear with bias, 302 x 512 -> 3200", of(&Blocks::linear), false},
      {"clipping + AdamW, 34 million", of(&Blocks::adamw)},
  };
}

}  // namespace vla
