#include "worker/policies/nn/unet1d.hpp"

#include <cmath>
#include <optional>

#include <torch/torch.h>

#include "worker/policies/nn/activation_checkpoint.hpp"
#include "worker/policies/nn/fast_linear.hpp"
#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/group_norm_mish.hpp"
#include "worker/policies/nn/random_init.hpp"
#include "worker/policies/nn/unfold_steps.hpp"

namespace vla {
namespace {

torch::nn::Conv1d conv1d(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding) {
  return torch::nn::Conv1d(torch::nn::Conv1dOptions(in, out, kernel).stride(stride).padding(padding));
}

// Sines, then cosines.
at::Tensor sinusoid_of_steps(const at::Tensor& timesteps, int64_t dim) {
  const int64_t half = dim / 2;
  const double decay = std::log(10000.0) / static_cast<double>(half - 1);
  const at::Tensor frequencies = (at::arange(half, timesteps.options().dtype(at::kFloat)) * -decay).exp();
  const at::Tensor angles = timesteps.unsqueeze(1) * frequencies;
  return at::cat({angles.sin(), angles.cos()}, 1);
}

}  // namespace

class Unet1d::ConvBlock : public torch::nn::Module {
 public:
  ConvBlock(int64_t in, int64_t out, int64_t kernel, int64_t groups) {
    block_ = register_module("block", torch::nn::Sequential(conv1d(in, out, kernel, 1, kernel / 2),
                                                            torch::nn::GroupNorm(groups, out), torch::nn::Mish()));
  }
  at::Tensor forward(const at::Tensor& x) { return block_->forward(x); }
  // x [B, steps, channels]; see group_norm_mish().
  at::Tensor forward_fast(const at::Tensor& x, const at::Tensor& modulation, const at::Tensor& residual) {
    const at::Tensor convolved = convolve_steps(x, *block_->ptr<torch::nn::Conv1dImpl>(0));
    return group_norm_mish(convolved, *block_->ptr<torch::nn::GroupNormImpl>(1), modulation, residual);
  }

 private:
  torch::nn::Sequential block_{nullptr};
};

class Unet1d::Block : public torch::nn::Module {
 public:
  Block(int64_t in, int64_t out, const Unet1dOptions& options) : scales_(options.scale_modulation) {
    torch::nn::Module* convolutions = this;
    std::string names[] = {"conv1", "conv2"};
    if (options.names == UnetNames::kOriginal) {
      convolutions = register_module("blocks", std::make_shared<torch::nn::Module>("blocks")).get();
      names[0] = "0";
      names[1] = "1";
    }
    first_ = convolutions->register_module(names[0], std::make_shared<ConvBlock>(in, out, options.kernel_size, options.groups));
    cond_encoder_ = register_module("cond_encoder", torch::nn::Sequential(torch::nn::Mish(), torch::nn::Linear(options.condition_dim + options.step_embed_dim,
                                                                                                               scales_ ? 2 * out : out)));
    second_ = convolutions->register_module(names[1], std::make_shared<ConvBlock>(out, out, options.kernel_size, options.groups));
    if (in != out) residual_conv_ = register_module("residual_conv", conv1d(in, out, 1, 1, 0));
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& condition) {
    if (fast_mode()) return forward_fast(x, condition);
    at::Tensor hidden = first_->forward(x);
    const at::Tensor modulation = cond_encoder_->forward(condition).unsqueeze(-1);
    if (scales_) {
      const auto halves = modulation.chunk(2, 1);  // scale, shift
      hidden = halves[0] * hidden + halves[1];
    } else {
      hidden = hidden + modulation;
    }
    return second_->forward(hidden) + (residual_conv_ ? residual_conv_(x) : x);
  }

 private:
  // x [B, steps, channels]; `condition` has been through Mish, which all blocks begin with.
  at::Tensor forward_fast(const at::Tensor& x, const at::Tensor& condition) {
    const torch::nn::LinearImpl& encoder = *cond_encoder_->ptr<torch::nn::LinearImpl>(1);
    const at::Tensor modulation = fast_linear(condition, encoder.weight, encoder.bias);
    const at::Tensor hidden = first_->forward_fast(x, modulation, {});
    return second_->forward_fast(hidden, {}, residual_conv_ ? convolve_steps(x, *residual_conv_) : x);
  }

  bool scales_;
  std::shared_ptr<ConvBlock> first_, second_;
  torch::nn::Sequential cond_encoder_{nullptr};
  torch::nn::Conv1d residual_conv_{nullptr};
};

Unet1d::Level Unet1d::add_level(torch::nn::Module& parent, int64_t in, int64_t out, const Unet1dOptions& options) {
  const auto level = parent.register_module(std::to_string(parent.children().size()), std::make_shared<torch::nn::Module>("level"));
  const auto block = [&](const char* name, int64_t from) { return level->register_module(name, std::make_shared<Block>(from, out, options)); };
  Level result;
  result.first = block("0", in);
  result.second = block("1", out);
  return result;
}

Unet1d::Unet1d(const Unet1dOptions& options) : step_embed_dim_(options.step_embed_dim) {
  std::optional<ParallelRandomInit> on_all_cores(std::in_place);
  const auto& dims = options.down_dims;
  // Layers are made one by one: the order in which arguments of a call are evaluated, and draw their weights, is not defined.
  const torch::nn::Linear widen(step_embed_dim_, 4 * step_embed_dim_);
  const torch::nn::Linear narrow(4 * step_embed_dim_, step_embed_dim_);
  step_encoder_ = register_module("diffusion_step_encoder", torch::nn::Sequential(torch::nn::Identity(), widen, torch::nn::Mish(), narrow));
  const auto list = [&](const char* name) { return register_module(name, std::make_shared<torch::nn::Module>(name)); };
  // Adds a convolution as the third module of the level that was added last.
  const auto resample = [&](torch::nn::Module& levels, auto convolution) -> Resample {
    torch::nn::Module* parent = levels.children().back().get();
    std::string name = "2";
    if (options.names == UnetNames::kOriginal) {
      parent = parent->register_module(name, std::make_shared<torch::nn::Module>("resample")).get();
      name = "conv";
    }
    parent->register_module(name, convolution);
    return [convolution](const at::Tensor& x) { return fast_mode() ? convolve_steps(x, *convolution) : convolution.ptr()->forward(x); };
  };

  const auto down = list("down_modules");
  for (size_t i = 0; i < dims.size(); ++i) {
    down_.push_back(add_level(*down, i == 0 ? options.channels : dims[i - 1], dims[i], options));
    if (i + 1 < dims.size()) down_.back().resample = resample(*down, conv1d(dims[i], dims[i], 3, 2, 1));
  }
  const auto middle = list("mid_modules");
  for (const char* name : {"0", "1"}) middle_.push_back(middle->register_module(name, std::make_shared<Block>(dims.back(), dims.back(), options)));
  const auto up = list("up_modules");
  for (size_t i = dims.size() - 1; i > 0; --i) {
    up_.push_back(add_level(*up, 2 * dims[i], dims[i - 1], options));
    const auto transposed = torch::nn::ConvTranspose1dOptions(dims[i - 1], dims[i - 1], 4).stride(2).padding(1);
    up_.back().resample = resample(*up, torch::nn::ConvTranspose1d(transposed));
  }
  constexpr int64_t kFinalGroups = 8;  // whatever the option says, as in the references
  const auto last = std::make_shared<ConvBlock>(dims[0], dims[0], options.kernel_size, kFinalGroups);
  final_conv_ = register_module("final_conv", torch::nn::Sequential(last, conv1d(dims[0], options.channels, 1, 1, 0)));
  on_all_cores.reset();  // now there are weights
  if (!fast_mode()) return;
  for (auto& parameter : parameters()) {
    if (parameter.dim() == 3 && parameter.size(2) > 1) parameter.set_data(stored_for_products(parameter.detach()));
  }
}

at::Tensor Unet1d::step_embedding(const at::Tensor& timesteps) {
  const at::Tensor& weight = step_encoder_->ptr<torch::nn::LinearImpl>(1)->weight;
  return step_encoder_->forward(sinusoid_of_steps(timesteps, step_embed_dim_).to(weight.scalar_type()));
}

at::Tensor Unet1d::run(const std::shared_ptr<Block>& block, const at::Tensor& x, const at::Tensor& condition) {
  return checkpoint_if(checkpoint_blocks_, *block, [block](const std::vector<at::Tensor>& in) { return block->forward(in[0], in[1]); }, {x, condition});
}

at::Tensor Unet1d::forward(const at::Tensor& x, const at::Tensor& timesteps, const at::Tensor& condition) {
  const bool fast = fast_mode();
  const int64_t channels = fast ? 2 : 1;  // the dimension
  at::Tensor full_condition = at::cat({step_embedding(timesteps), condition}, 1);
  if (fast) full_condition = at::mish(full_condition);
  at::Tensor hidden = fast ? x : x.transpose(1, 2);
  std::vector<at::Tensor> skips;
  for (const Level& level : down_) {
    hidden = run(level.second, run(level.first, hidden, full_condition), full_condition);
    skips.push_back(hidden);
    if (level.resample) hidden = level.resample(hidden);
  }
  for (const auto& block : middle_) hidden = run(block, hidden, full_condition);
  for (const Level& level : up_) {
    hidden = at::cat({hidden, skips.back()}, channels);
    skips.pop_back();
    hidden = level.resample(run(level.second, run(level.first, hidden, full_condition), full_condition));
  }
  if (!fast) return final_conv_->forward(hidden).transpose(1, 2);
  return convolve_steps(final_conv_->ptr<ConvBlock>(0)->forward_fast(hidden, {}, {}), *final_conv_->ptr<torch::nn::Conv1dImpl>(1));
}

}  // namespace vla
