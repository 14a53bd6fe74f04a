#include "worker/policies/nn/resnet.hpp"

#include <fmt/ranges.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "worker/checkpoint/safetensors.hpp"
#include "worker/policies/nn/activation_checkpoint.hpp"

namespace vla {
namespace {

torch::nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

class BasicBlock : public torch::nn::Module {
 public:
  // `downsample` comes first because torchvision draws its weights before the block's.
  BasicBlock(torch::nn::Sequential downsample, int64_t in, int64_t out, int64_t stride) : downsample_(std::move(downsample)) {
    conv1_ = register_module("conv1", conv(in, out, 3, stride));
    bn1_ = register_module("bn1", std::make_shared<FrozenBatchNorm2d>(out));
    conv2_ = register_module("conv2", conv(out, out, 3, 1));
    bn2_ = register_module("bn2", std::make_shared<FrozenBatchNorm2d>(out));
    if (downsample_) register_module("downsample", downsample_);
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = bn1_->forward(conv1_(x)).relu_();
    at::Tensor out = bn2_->forward(conv2_(hidden));
    out += downsample_ ? downsample_->forward(x) : x;
    return out.relu_();
  }

 private:
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  std::shared_ptr<FrozenBatchNorm2d> bn1_, bn2_;
  torch::nn::Sequential downsample_{nullptr};
};

torch::nn::Sequential stage(int64_t in, int64_t out, int64_t stride) {
  torch::nn::Sequential downsample{nullptr};
  if (stride != 1) downsample = torch::nn::Sequential(conv(in, out, 1, stride), FrozenBatchNorm2d(out));
  const auto first = std::make_shared<BasicBlock>(downsample, in, out, stride);
  return torch::nn::Sequential(first, std::make_shared<BasicBlock>(torch::nn::Sequential(nullptr), out, out, 1));
}

}  // namespace

FrozenBatchNorm2d::FrozenBatchNorm2d(int64_t channels) {
  weight_ = register_buffer("weight", torch::ones({channels}));
  bias_ = register_buffer("bias", torch::zeros({channels}));
  running_mean_ = register_buffer("running_mean", torch::zeros({channels}));
  running_var_ = register_buffer("running_var", torch::ones({channels}));
}

at::Tensor FrozenBatchNorm2d::forward(const at::Tensor& x) {
  return at::batch_norm(x, weight_, bias_, running_mean_, running_var_, /*training=*/false, 0, 1e-5, /*cudnn_enabled=*/false);
}

ResNet18::ResNet18() {
  conv1_ = register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 64, 7).stride(2).padding(3).bias(false)));
  bn1_ = register_module("bn1", std::make_shared<FrozenBatchNorm2d>(64));
  layer1_ = register_module("layer1", stage(64, 64, 1));
  layer2_ = register_module("layer2", stage(64, 128, 2));
  layer3_ = register_module("layer3", stage(128, 256, 2));
  layer4_ = register_module("layer4", stage(256, kChannels, 2));
  torch::nn::Linear(kChannels, 1000);  // the classifier we lack: leaves the generator where torchvision leaves it
  for (const auto& module : modules(/*include_self=*/false)) {
    if (const auto* layer = module->as<torch::nn::Conv2dImpl>()) {
      torch::nn::init::kaiming_normal_(layer->weight, 0, torch::kFanOut, torch::kReLU);
      // As images arrive: otherwise weight gradients have other strides than weights, and DDP copies each of them.
      // (contiguous() would leave 1x1 kernels with the strides they have, which count as both layouts.)
      layer->weight.set_data(at::empty_like(layer->weight, {}, at::MemoryFormat::ChannelsLast).copy_(layer->weight.detach()));
    }
  }
}

at::Tensor ResNet18::forward(const at::Tensor& images) {
  const auto stem = [conv1 = conv1_.ptr(), bn1 = bn1_](const std::vector<at::Tensor>& in) {
    return at::max_pool2d(bn1->forward(conv1->forward(in[0])).relu_(), 3, 2, 1);
  };
  at::Tensor x = checkpoint_if(checkpoint_blocks_, *conv1_, stem, {images});
  for (auto* layer : {&layer1_, &layer2_, &layer3_, &layer4_}) {
    for (const auto& module : **layer) {
      const auto block = module.ptr<BasicBlock>();
      const auto segment = [block](const std::vector<at::Tensor>& in) { return block->forward(in[0]); };
      x = checkpoint_if(checkpoint_blocks_, *block, segment, {x});
    }
  }
  return x;
}

void ResNet18::load_torchvision(const std::string& path) {
  auto file = load_safetensors(path);
  std::erase_if(file, [](const auto& entry) { return entry.first.starts_with("fc.") || entry.first.ends_with(".num_batches_tracked"); });
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
  for (const auto& entry : named_buffers()) copy(entry.key(), entry.value());
  for (const auto& [name, tensor] : file) problems.push_back(fmt::format("{} is unknown", name));
  if (!problems.empty()) {
    throw cxxrun::Error("{}: not the state dict of a torchvision resnet18: {}", path, fmt::join(problems, "; "));
  }
}

}  // namespace vla
