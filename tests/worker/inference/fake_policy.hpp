// A policy whose chunk says what it saw: action k is [state of the step before, state, mean of the image, task, row's position, k].
#pragma once

#include <cmath>
#include <memory>

#include <torch/torch.h>

#include "worker/inference/policy_runner.hpp"

namespace vla {

struct FakeOptions : PolicyOptions {
  int64_t n_action_steps = 2;
  bool reads_tasks = false;

  void describe(cxxrun::OptionTable& table) override { table.add("n_action_steps", n_action_steps, "as ACT's"); }
  void validate(const PolicyFeatures&) const override {}
  OptimizerOptions optimizer_preset() const override { return {}; }
  data::SampleRequest sample_request(const PolicyFeatures&) const override {
    return {{"observation.image", {}}, {"observation.state", {-1, 0}}, {"action", {-1, 0, 1, 2}}};
  }
  std::map<data::FeatureType, NormalizationMode> normalization() const override { return {}; }
  std::optional<TextProcessor> text_processor() const override { return reads_tasks ? std::optional(TextProcessor()) : std::nullopt; }
};

struct FakePolicy : Policy {
  explicit FakePolicy(bool reads_tasks) {
    options_.reads_tasks = reads_tasks;
    features_.inputs = {{"observation.image", data::FeatureType::kVisual, {3, 4, 6}}, {"observation.state", data::FeatureType::kState, {1}}};
    features_.outputs = {{"action", data::FeatureType::kAction, {6}}};
    register_parameter("weight", torch::zeros({1}));
  }

  const PolicyOptions& options() const override { return options_; }
  const PolicyFeatures& features() const override { return features_; }
  std::vector<ParameterGroup> parameter_groups() override { return {}; }
  torch::Tensor loss_counts(const Batch&) const override { return torch::zeros({0}); }
  PolicyLoss compute_loss(const Batch&, const torch::Tensor&, const StepRandom&) override { return {}; }
  torch::Tensor sample_chunk(const Batch& batch, const StepRandom&) override {
    TORCH_CHECK(batch.at("observation.image").sizes() == torch::IntArrayRef({1, 3, 4, 6}), "an image of another size");
    if (is_broken) return torch::full({1, 3, 6}, NAN);
    const auto state = batch.at("observation.state");  // [1, 2, 1]
    const auto one = [](const torch::Tensor& value) { return value.to(torch::kFloat).reshape({1, 1}).expand({1, 3}); };
    return torch::stack({one(state[0][0]), one(state[0][1]), one(batch.at("observation.image").mean()), one(batch.at("task_index")),
                         one(batch.position), torch::arange(3, torch::kFloat).unsqueeze(0)}, -1);
  }
  void set_tasks(const std::vector<std::string>& tasks) override { told = tasks; }

  std::vector<std::string> told;
  bool is_broken = false;

 private:
  FakeOptions options_;
  PolicyFeatures features_;
};

inline PolicyRunner fake_runner(const std::string& image_size = "exact", bool reads_tasks = false) {
  const auto policy = std::make_shared<FakePolicy>(reads_tasks);
  LoadedPolicy loaded{"checkpoint", "fake", policy, {}, Normalizer({}, policy->features(), {}, at::kCPU)};
  return PolicyRunner(std::move(loaded), at::kCPU, {.seed = 0, .image_size = image_size});
}

inline Observation observation(float state, int64_t height = 4, int64_t width = 6, uint8_t brightness = 255) {
  return {.values = {{"observation.image", torch::full({height, width, 3}, brightness, torch::kByte)}, {"observation.state", torch::full({1}, state)}}};
}

}  // namespace vla
