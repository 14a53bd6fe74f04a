#include "worker/policies/nn/resnet.hpp"

#include <ATen/autocast_mode.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "worker/checkpoint/safetensors.hpp"
#include "worker/policies/nn/activation_checkpoint.hpp"
#include "worker/policies/nn/channels_last.hpp"
#include "worker/policies/nn/channel_affine.hpp"
#include "worker/policies/nn/device_kernel.hpp"
#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/folded_convolution.hpp"
#include "worker/policies/nn/group_norm_mish.hpp"
#include "worker/policies/nn/sync_batch_norm.hpp"

namespace vla {
namespace {

// The parts of torchvision's ResNet that have tensors, and their places among its children.
const std::map<std::string, std::string> kPlaces = {{"conv1", "0"}, {"bn1", "1"}, {"layer1", "4"}, {"layer2", "5"}, {"layer3", "6"}, {"layer4", "7"}};

std::string own_name(const std::string& name, ResNetNames names) {
  return names == ResNetNames::kSequential ? kPlaces.at(name) : name;
}

torch::nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// What follows a norm, in place.
at::Tensor add_and_relu(at::Tensor x, const at::Tensor& residual, bool relu) {
  if (residual.defined()) x += residual;
  return relu ? x.relu_() : x;
}

// In 16 bits: float32's units have no use for the folded pixels' zeros.
at::Tensor first_convolution(torch::nn::Conv2dImpl& layer, const at::Tensor& images) {
  const at::DeviceType device = images.device().type();
  const at::ScalarType dtype = at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device) : images.scalar_type();
  const bool folds = fast_mode() && at::isReducedFloatingType(dtype) && images.size(2) % 2 == 0 && images.size(3) % 2 == 0;
  return folds ? folded_convolution(images.to(dtype), layer.weight) : layer.forward(images);
}

// Registers a norm in `parent`. The function shares the module, which is the parent's child.
ResNet18::Norm add_norm(torch::nn::Module& parent, const std::string& name, ResNetNorm kind, int64_t channels) {
  if (kind == ResNetNorm::kBatch) {
    const auto norm = parent.register_module(name, std::make_shared<SyncBatchNorm2d>(channels));
    return [norm](const at::Tensor& x, const BatchStatistics& batch, const at::Tensor& residual, bool relu) {
      return norm->forward(x, batch, residual, relu);
    };
  }
  if (kind == ResNetNorm::kGroup) {
    const auto norm = parent.register_module(name, torch::nn::GroupNorm(channels / 16, channels));
    return [norm](const at::Tensor& x, const BatchStatistics&, const at::Tensor& residual, bool relu) {
      return fast_mode() ? group_norm_relu(x, *norm, residual, relu) : add_and_relu(norm->forward(x), residual, relu);
    };
  }
  const auto norm = parent.register_module(name, std::make_shared<FrozenBatchNorm2d>(channels));
  return [norm](const at::Tensor& x, const BatchStatistics&, const at::Tensor& residual, bool relu) {
    if (!fast_mode()) return add_and_relu(norm->forward(x), residual, relu);
    const auto& affine = norm->affine(x);
    return channel_affine(x, affine.scale, affine.shift, residual, relu);
  };
}

}  // namespace

class BasicBlock : public torch::nn::Module {
 public:
  BasicBlock(ResNetNorm norm, int64_t in, int64_t out, int64_t stride) {
    // Made first because torchvision draws its weights before the block's.
    const auto downsample = std::make_shared<torch::nn::Module>("downsample");
    if (stride != 1) {
      shortcut_conv_ = downsample->register_module("0", conv(in, out, 1, stride));
      shortcut_norm_ = add_norm(*downsample, "1", norm, out);
    }
    conv1_ = register_module("conv1", conv(in, out, 3, stride));
    bn1_ = add_norm(*this, "bn1", norm, out);
    conv2_ = register_module("conv2", conv(out, out, 3, 1));
    bn2_ = add_norm(*this, "bn2", norm, out);
    if (stride != 1) register_module("downsample", downsample);
  }

  at::Tensor forward(const at::Tensor& x, const BatchStatistics& batch) {
    const at::Tensor hidden = bn1_(conv1_(x), batch, {}, true);
    const at::Tensor shortcut = shortcut_norm_ ? shortcut_norm_(shortcut_conv_->forward(x), batch, {}, false) : x;
    return bn2_(conv2_(hidden), batch, shortcut, true);
  }

 private:
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  std::shared_ptr<torch::nn::Conv2dImpl> shortcut_conv_;  // of blocks that change the shape
  ResNet18::Norm bn1_, bn2_, shortcut_norm_;
};

FrozenBatchNorm2d::FrozenBatchNorm2d(int64_t channels) {
  weight_ = register_buffer("weight", torch::ones({channels}));
  bias_ = register_buffer("bias", torch::zeros({channels}));
  running_mean_ = register_buffer("running_mean", torch::zeros({channels}));
  running_var_ = register_buffer("running_var", torch::ones({channels}));
}

at::Tensor FrozenBatchNorm2d::forward(const at::Tensor& x) {
  return at::batch_norm(x, weight_, bias_, running_mean_, running_var_, /*training=*/false, 0, 1e-5, /*cudnn_enabled=*/false);
}

const FrozenBatchNorm2d::Affine& FrozenBatchNorm2d::affine(const at::Tensor& x) {
  decltype(affine_of_) now;
  for (const at::Tensor& buffer : {weight_, bias_, running_mean_, running_var_}) now.emplace_back(buffer.const_data_ptr(), buffer._version());
  if (!affine_.scale.defined() || affine_.scale.scalar_type() != sum_type(x) || now != affine_of_) {
    const torch::NoGradGuard no_grad;
    const at::ScalarType dtype = sum_type(x);
    affine_.scale = weight_.to(dtype) * (running_var_.to(dtype) + 1e-5).rsqrt();
    affine_.shift = bias_.to(dtype) - running_mean_.to(dtype) * affine_.scale;
    affine_of_ = std::move(now);
  }
  return affine_;
}

ResNet18::ResNet18(ResNetNorm norm, ResNetNames names) : norm_(norm), names_(names) {
  conv1_ = register_module(own_name("conv1", names), torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 64, 7).stride(2).padding(3).bias(false)));
  bn1_ = add_norm(*this, own_name("bn1", names), norm, 64);
  frozen_stem_ = std::dynamic_pointer_cast<FrozenBatchNorm2d>(children().back());
  int64_t in = 64;
  for (const auto& [name, out] : {std::pair("layer1", int64_t{64}), {"layer2", 128}, {"layer3", 256}, {"layer4", kChannels}}) {
    const auto layer = register_module(own_name(name, names), torch::nn::ModuleList());
    for (const int64_t stride : {out == in ? 1 : 2, 1}) {
      blocks_.push_back(std::make_shared<BasicBlock>(norm, in, out, stride));
      layer->push_back(blocks_.back());
      in = out;
    }
  }
  torch::nn::Linear(kChannels, 1000);  // the classifier we lack: leaves the generator where torchvision leaves it
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* layer = module->as<torch::nn::Conv2dImpl>()) {
      torch::nn::init::kaiming_normal_(layer->weight, 0, torch::kFanOut, torch::kReLU);
      if (norm == ResNetNorm::kGroup && !fast_mode()) continue;
      store_channels_last(*layer);
    }
  }
}

at::Tensor ResNet18::forward(const at::Tensor& images, const BatchStatistics& batch) {
  const auto stem = [conv1 = conv1_.ptr(), bn1 = bn1_, frozen = frozen_stem_, batch](const std::vector<at::Tensor>& in) {
    const at::Tensor x = first_convolution(*conv1, in[0]);
    if (!frozen || !fast_mode()) return at::max_pool2d(bn1(x, batch, {}, true), 3, 2, 1);
    const auto& affine = frozen->affine(x);
    return affine_relu_pool(x, affine.scale, affine.shift);
  };
  // ATen's group norms are slow (CUDA) or inexact (CPU, float32) on images with channels last.
  at::Tensor x = checkpoint_if(checkpoint_blocks_, *conv1_, stem, {norm_ == ResNetNorm::kGroup && !fast_mode() ? images.contiguous() : images});
  for (const auto& block : blocks_) {
    const auto segment = [block, batch](const std::vector<at::Tensor>& in) { return block->forward(in[0], batch); };
    x = checkpoint_if(checkpoint_blocks_, *block, segment, {x});
  }
  return x;
}

void ResNet18::load_torchvision(const std::string& path) {
  TensorMap file;
  for (auto& [name, tensor] : load_safetensors(path)) {
    if (name.starts_with("fc.") || name.ends_with(".num_batches_tracked")) continue;
    const std::string part = name.substr(0, name.find('.'));
    file[kPlaces.contains(part) ? own_name(part, names_) + name.substr(part.size()) : name] = tensor;
  }
  std::vector<std::string> problems;
  const auto copy = [&](const std::string& name, at::Tensor target) {
    const auto found = file.find(name);
    if (found == file.end()) {
      problems.push_back(fmt::format("{} is missing", name));
    } else if (found->second.sizes() != target.sizes()) {
      problems.push_back(fmt::format("{} has shape [{}] instead of [{}]", name, fmt::join(found->second.sizes(), ", "),
                                     fmt::join(target.sizes(), ", ")));
    } else {
      target.copy_(found->second);
    }
    file.erase(name);
  };
  const torch::NoGradGuard no_grad;
  for (const auto& entry : named_parameters()) copy(entry.key(), entry.value());
  for (const auto& entry : named_buffers()) {
    if (!entry.key().ends_with(".num_batches_tracked")) copy(entry.key(), entry.value());
  }
  for (const auto& [name, tensor] : file) problems.push_back(fmt::format("{} is unknown", name));
  if (!problems.empty()) {
    throw cxxrun::Error("{}: not the state dict of a torchvision resnet18: {}", path, fmt::join(problems, "; "));
  }
}

}  // namespace vla
