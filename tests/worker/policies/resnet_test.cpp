#include "worker/policies/nn/resnet.hpp"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include "common/error.hpp"
#include "worker/checkpoint/safetensors.hpp"

namespace vla {
namespace {

class ResNetWeights : public testing::Test {
 protected:
  ResNetWeights() : path_(std::filesystem::temp_directory_path() / ("resnet_" + std::to_string(getpid()) + ".safetensors")) {
    torch::manual_seed(1);
    ResNet18 source;
    for (const auto& entry : source.named_parameters()) state_[entry.key()] = entry.value().detach();
    for (const auto& entry : source.named_buffers()) state_[entry.key()] = torch::rand_like(entry.value()) + 0.5;
    state_["fc.weight"] = torch::zeros({4, 512});
    state_["bn1.num_batches_tracked"] = torch::zeros({}, at::kLong);
  }
  ~ResNetWeights() override { std::filesystem::remove(path_); }

  std::string error_of_loading() {
    save_safetensors(path_, state_);
    try {
      ResNet18().load_torchvision(path_);
    } catch (const cxxrun::Error& error) {
      return error.what();
    }
    return "no error";
  }

  std::filesystem::path path_;
  TensorMap state_;
};

TEST_F(ResNetWeights, AreTakenFromATorchvisionStateDict) {
  save_safetensors(path_, state_);
  ResNet18 target;
  target.load_torchvision(path_);
  for (const auto& entry : target.named_parameters()) EXPECT_TRUE(entry.value().equal(state_.at(entry.key()))) << entry.key();
  for (const auto& entry : target.named_buffers()) EXPECT_TRUE(entry.value().equal(state_.at(entry.key()))) << entry.key();
}

TEST_F(ResNetWeights, OfAnotherNetworkAreAnErrorNamingFileAndTensors) {
  state_.erase("layer3.1.conv2.weight");
  state_["layer1.0.conv3.weight"] = torch::zeros({1});
  state_["conv1.weight"] = torch::zeros({64, 1, 7, 7});
  EXPECT_THAT(error_of_loading(),
              testing::AllOf(testing::HasSubstr(path_.string()), testing::HasSubstr("layer3.1.conv2.weight is missing"),
                             testing::HasSubstr("layer1.0.conv3.weight is unknown"),
                             testing::HasSubstr("conv1.weight has shape [64, 1, 7, 7] instead of [64, 3, 7, 7]")));
}

TEST(FrozenBatchNorm2d, FollowsItsFormulaAndTrainsNothing) {
  torch::manual_seed(1);
  FrozenBatchNorm2d norm(3);
  EXPECT_TRUE(norm.parameters().empty());
  for (auto& entry : norm.named_buffers()) entry.value().copy_(torch::rand({3}) + 0.5);
  const auto buffers = norm.named_buffers();
  const auto buffer = [&](const char* name) { return buffers[name].view({1, 3, 1, 1}); };
  const at::Tensor x = torch::randn({2, 3, 4, 5});
  const at::Tensor scale = buffer("weight") * (buffer("running_var") + 1e-5).rsqrt();
  const at::Tensor expected = x * scale + (buffer("bias") - buffer("running_mean") * scale);
  norm.train();
  EXPECT_LE((norm.forward(x) - expected).abs().max().item<float>(), 1e-6);
}

}  // namespace
}  // namespace vla
