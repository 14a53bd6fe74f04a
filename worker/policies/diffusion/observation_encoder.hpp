// Diffusion policy's view of the observations: images resized, cut and encoded, and joined with the vectors to the U-Net's condition.
// LeRobot's reading (0.6.1, modeling_diffusion.py): normalized images, ResNet-18, keypoints, a linear layer. The original's
// (multi_image_obs_encoder.py): images in [-1, 1], ResNet-18, mean over the pixels. With batch norms its statistics are those of the
// global batch.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "worker/policies/diffusion/diffusion_options.hpp"
#include "worker/policies/nn/batch_statistics.hpp"

namespace vla {

class ObservationEncoder {
 public:
  // Registers its modules in `parent` as the reading names them.
  ObservationEncoder(const DiffusionOptions& options, const PolicyFeatures& features, torch::nn::Module& parent);

  int64_t condition_dim() const { return condition_dim_; }
  // [B, condition_dim]: of each observation the robot's state, the cameras' features and the environment's state (the original puts
  // cameras first), then the next observation. Images are cut at random places drawn from `random`, and in the middle where it is null.
  at::Tensor encode(const Batch& batch, const StepRandom* random, const AllReduceSum& all_reduce_sum) const;

 private:
  using Network = std::function<at::Tensor(const at::Tensor& images, const BatchStatistics& batch)>;  // [N, 3, h, w] -> [N, features]

  Network make_network(torch::nn::Module& parent, const std::string& name, const PolicyFeature& camera);
  // [B, n, 3, H, W] -> what the network gets, [B * n, 3, h, w]. `place` names the random numbers.
  at::Tensor prepare(const at::Tensor& images, const std::string& place, const StepRandom* random) const;
  at::Tensor crop(const at::Tensor& images, const std::string& place, const StepRandom& random) const;

  DiffusionOptions options_;
  std::vector<std::string> cameras_;
  std::string environment_key_;  // empty without one
  std::vector<Network> networks_;  // one a camera, or one for all
  int64_t condition_dim_ = 0;
};

}  // namespace vla
