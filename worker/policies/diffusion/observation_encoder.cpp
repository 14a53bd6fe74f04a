#include "worker/policies/diffusion/observation_encoder.hpp"

#include <algorithm>

#include <torch/torch.h>

#include "worker/image_ops.hpp"
#include "worker/policies/nn/resnet.hpp"
#include "worker/policies/nn/spatial_softmax.hpp"

namespace vla {
namespace {

std::shared_ptr<torch::nn::Module> add_list(torch::nn::Module& parent, const std::string& name) {
  return parent.register_module(name, std::make_shared<torch::nn::Module>(name));
}

// LeRobot's network of a camera.
class RgbEncoder : public torch::nn::Module {
 public:
  RgbEncoder(const DiffusionOptions& options, int64_t height, int64_t width) {
    backbone_ = register_module("backbone", std::make_shared<ResNet18>(options.use_group_norm ? ResNetNorm::kGroup : ResNetNorm::kBatch, ResNetNames::kSequential));
    if (options.has_backbone_weights()) backbone_->load_torchvision(options.backbone_weights);
    // LeRobot learns the size of the features by a black image, which counts in the batch norms' statistics.
    const torch::NoGradGuard no_grad;
    const at::Tensor features = backbone_->forward(torch::zeros({1, 3, height, width}));
    pool_ = register_module("pool", std::make_shared<SpatialSoftmax>(ResNet18::kChannels, features.size(2), features.size(3), options.spatial_softmax_num_keypoints));
    const int64_t dim = 2 * options.spatial_softmax_num_keypoints;
    out_ = register_module("out", torch::nn::Linear(dim, dim));
  }

  at::Tensor forward(const at::Tensor& images, const BatchStatistics& batch) {
    return out_(pool_->forward(backbone_->forward(images, batch))).relu();
  }

 private:
  std::shared_ptr<ResNet18> backbone_;
  std::shared_ptr<SpatialSoftmax> pool_;
  torch::nn::Linear out_{nullptr};
};

// "observation.images.head_camera" is "head_cam" in RoboTwin's policy.
std::string original_name(const std::string& camera) {
  std::string name = camera.substr(camera.rfind('.') + 1);
  if (name.ends_with("_camera")) name.resize(name.size() - 3);
  return name;
}

at::Tensor imagenet_normalized(const at::Tensor& images) {
  // Filled on the device: what is copied there from the host cannot be part of a captured graph.
  const auto per_channel = [&](std::initializer_list<float> values) {
    const at::Tensor result = at::empty({3, 1, 1}, images.options());
    int64_t channel = 0;
    for (const float value : values) result[channel++].fill_(value);
    return result;
  };
  return (images - per_channel({0.485F, 0.456F, 0.406F})) / per_channel({0.229F, 0.224F, 0.225F});
}

}  // namespace

ObservationEncoder::ObservationEncoder(const DiffusionOptions& options, const PolicyFeatures& features, torch::nn::Module& parent)
    : options_(options) {
  DiffusionInputs inputs = diffusion_inputs(features);
  int64_t dim = inputs.robot_state->shape[0];
  if (inputs.environment_state != nullptr) {
    environment_key_ = inputs.environment_state->key;
    dim += inputs.environment_state->shape[0];
  }
  if (!inputs.cameras.empty()) {
    const bool shared = !options.use_separate_rgb_encoder_per_camera;
    if (options.is_original()) {
      std::ranges::sort(inputs.cameras, {}, &PolicyFeature::key);
      const auto map = add_list(*add_list(parent, "obs_encoder"), "key_model_map");
      for (const PolicyFeature* camera : inputs.cameras) {
        if (shared && !networks_.empty()) break;
        networks_.push_back(make_network(*map, shared ? "rgb" : original_name(camera->key), *camera));
      }
    } else if (shared) {
      networks_.push_back(make_network(parent, "rgb_encoder", *inputs.cameras[0]));
    } else {
      const auto list = add_list(parent, "rgb_encoder");
      for (size_t i = 0; i < inputs.cameras.size(); ++i) networks_.push_back(make_network(*list, std::to_string(i), *inputs.cameras[i]));
    }
  }
  for (const PolicyFeature* camera : inputs.cameras) cameras_.push_back(camera->key);
  dim += static_cast<int64_t>(cameras_.size()) * (options.is_original() ? ResNet18::kChannels : 2 * options.spatial_softmax_num_keypoints);
  condition_dim_ = options.n_obs_steps * dim;
}

ObservationEncoder::Network ObservationEncoder::make_network(torch::nn::Module& parent, const std::string& name, const PolicyFeature& camera) {
  if (options_.is_original()) {
    const auto resnet = parent.register_module(name, std::make_shared<ResNet18>(options_.use_group_norm ? ResNetNorm::kGroup : ResNetNorm::kBatch));
    if (options_.has_backbone_weights()) resnet->load_torchvision(options_.backbone_weights);
    return [resnet](const at::Tensor& images, const BatchStatistics& batch) { return resnet->forward(images, batch).mean({2, 3}); };
  }
  std::vector<int64_t> size{camera.shape[1], camera.shape[2]};
  if (!options_.resize_shape.empty()) size = options_.resize_shape;
  if (const auto window = options_.crop(); !window.empty()) size = window;
  const auto encoder = parent.register_module(name, std::make_shared<RgbEncoder>(options_, size[0], size[1]));
  return [encoder](const at::Tensor& images, const BatchStatistics& batch) { return encoder->forward(images, batch); };
}

at::Tensor ObservationEncoder::crop(const at::Tensor& images, const std::string& place, const StepRandom& random) const {
  const auto window = options_.crop();
  const uint32_t stream = random_stream(place);
  // LeRobot cuts a batch at one place, the original each image at its own: [1 or B * n, 2].
  const at::Tensor uniform = options_.is_original() ? random.uniform(stream, {images.size(1), 2}, at::kFloat).flatten(0, 1)
                                                    : random.for_batch().uniform(stream, {2}, at::kFloat);
  return crop_at(images.flatten(0, 1), crop_offsets(uniform.select(1, 0), images.size(-2), window[0]),
                 crop_offsets(uniform.select(1, 1), images.size(-1), window[1]), window[0], window[1]);
}

at::Tensor ObservationEncoder::prepare(const at::Tensor& images, const std::string& place, const StepRandom* random) const {
  at::Tensor result = options_.is_original() ? images * 2 - 1 : images;
  if (!options_.resize_shape.empty()) result = resize_bilinear(result, options_.resize_shape[0], options_.resize_shape[1], /*antialias=*/true);
  const auto window = options_.crop();
  if (window.empty()) {
    result = result.flatten(0, 1);
  } else if (random != nullptr && options_.crop_is_random) {
    result = crop(result, place, *random);
  } else {
    result = centre_crop(result.flatten(0, 1), window[0], window[1]);
  }
  return options_.is_original() && options_.imagenet_norm ? imagenet_normalized(result) : result;
}

at::Tensor ObservationEncoder::encode(const Batch& batch, const StepRandom* random, const AllReduceSum& all_reduce_sum) const {
  const BatchStatistics statistics{batch.weight, all_reduce_sum};
  const at::Tensor& state = batch.at("observation.state");
  std::vector<at::Tensor> images, features;
  for (const std::string& camera : cameras_) images.push_back(batch.at(camera));
  const auto run = [&](const Network& network, const at::Tensor& of, const std::string& place) {
    features.push_back(network(prepare(of, place, random), statistics).view({state.size(0), state.size(1), -1}));
  };
  if (networks_.size() == cameras_.size()) {
    for (size_t i = 0; i < cameras_.size(); ++i) run(networks_[i], images[i], "diffusion_crop." + cameras_[i]);
  } else {  // a row's images one after another: of each observation all cameras
    run(networks_[0], at::stack(images, 2).flatten(1, 2), "diffusion_crop");
  }
  features.insert(options_.is_original() ? features.end() : features.begin(), state);
  if (!environment_key_.empty()) features.push_back(batch.at(environment_key_));
  return at::cat(features, -1).flatten(1);
}

}  // namespace vla
