#include "worker/policies/linear/linear_policy.hpp"

#include <numeric>

#include <torch/torch.h>

#include "common/error.hpp"

namespace vla {
namespace {

const PolicyFeature* find(const std::vector<PolicyFeature>& features, const char* key) {
  const auto found = std::ranges::find(features, key, &PolicyFeature::key);
  return found == features.end() || found->shape.size() != 1 ? nullptr : &*found;
}

}  // namespace

void LinearOptions::describe(cxxrun::OptionTable& table) {
  table.add("chunk_size", chunk_size, "actions predicted at once").at_least(1).in("frames");
  table.add("n_action_steps", n_action_steps, "actions of a chunk that are executed before the next prediction").at_least(1).in("frames");
  table.add("loss", loss, "error to minimise").one_of({"l1", "mse"});
  table.add("optimizer_lr", optimizer_lr, "preset of optimizer.lr").at_least(0);
}

void LinearOptions::validate(const PolicyFeatures& features) const {
  if (n_action_steps > chunk_size) {
    throw cxxrun::UsageError("policy.n_action_steps = {} is above policy.chunk_size = {}: lower it", n_action_steps, chunk_size);
  }
  if (find(features.inputs, "observation.state") == nullptr || find(features.outputs, "action") == nullptr) {
    throw cxxrun::UsageError("policy linear needs the vectors 'observation.state' and 'action' among the dataset's features");
  }
}

OptimizerOptions LinearOptions::optimizer_preset() const {
  OptimizerOptions preset;
  preset.lr = optimizer_lr;
  return preset;
}

data::SampleRequest LinearOptions::sample_request(const PolicyFeatures&) const {
  std::vector<int64_t> chunk(chunk_size);
  std::iota(chunk.begin(), chunk.end(), 0);
  return {{"observation.state", {}}, {"action", chunk}};
}

std::map<data::FeatureType, NormalizationMode> LinearOptions::normalization() const {
  return {{data::FeatureType::kState, NormalizationMode::kMeanStd}, {data::FeatureType::kAction, NormalizationMode::kMeanStd}};
}

LinearPolicy::LinearPolicy(const LinearOptions& options, const PolicyFeatures& features) : options_(options), features_(features) {
  options_.validate(features_);
  const int64_t state_dim = find(features_.inputs, "observation.state")->shape[0];
  const int64_t action_dim = find(features_.outputs, "action")->shape[0];
  head_ = register_module("head", torch::nn::Linear(state_dim, options_.chunk_size * action_dim));
}

torch::Tensor LinearPolicy::forward(const Batch& batch) {
  return head_(batch.at("observation.state")).view({batch.rows(), options_.chunk_size, -1});
}

torch::Tensor LinearPolicy::loss_counts(const Batch& batch) const {
  return (valid_actions(batch).unsqueeze(-1).sum(at::kDouble) * static_cast<double>(batch.at("action").size(-1))).unsqueeze(0);
}

PolicyLoss LinearPolicy::compute_loss(const Batch& batch, const torch::Tensor& counts, const StepRandom&) {
  const torch::Tensor difference = batch.at("action") - forward(batch);
  const torch::Tensor error = options_.loss == "l1" ? difference.abs() : difference.square();
  const torch::Tensor loss = (error * valid_actions(batch).unsqueeze(-1)).sum() / counts[0].clamp_min(1).to(error.scalar_type());
  return {loss, {}};
}

torch::Tensor LinearPolicy::sample_chunk(const Batch& batch, const StepRandom&) {
  const torch::NoGradGuard no_grad;
  return forward(batch);
}

}  // namespace vla
