#include "tests/worker/policies/support.hpp"

#include <torch/torch.h>

namespace vla {
namespace {

const std::map<std::string, double> kSmall = {{"chunk_size", 6}, {"n_action_steps", 6}, {"dim_model", 32}, {"n_heads", 4},
                                              {"dim_feedforward", 48}, {"n_encoder_layers", 2}, {"n_vae_encoder_layers", 1},
                                              {"latent_dim", 4}};

}  // namespace

PolicyFeatures test_features(int64_t image) {
  PolicyFeatures features;
  for (const char* camera : {"observation.images.left", "observation.images.right"}) {
    features.inputs.push_back({camera, data::FeatureType::kVisual, {3, image, image}});
  }
  features.inputs.push_back({"observation.state", data::FeatureType::kState, {5}});
  features.outputs.push_back({"action", data::FeatureType::kAction, {3}});
  return features;
}

std::unique_ptr<PolicyOptions> test_options(const PolicyEntry& entry, const std::map<std::string, double>& values) {
  auto options = entry.make_options();
  cxxrun::OptionTable table;
  options->describe(table);
  for (auto& row : table.rows()) {
    const auto* chosen = values.contains(row.name) ? &values : kSmall.contains(row.name) ? &kSmall : nullptr;
    if (chosen == nullptr) continue;
    const double value = chosen->at(row.name);
    if (auto* integer = std::get_if<int64_t*>(&row.value)) **integer = static_cast<int64_t>(value);
    if (auto* real = std::get_if<double*>(&row.value)) **real = value;
    if (auto* flag = std::get_if<bool*>(&row.value)) **flag = value != 0;
  }
  return options;
}

Batch random_batch(const PolicyFeatures& features, const BatchShape& shape, at::ScalarType dtype) {
  Batch batch;
  for (const PolicyFeature& feature : features.inputs) {
    std::vector<int64_t> sizes{shape.rows};
    sizes.insert(sizes.end(), feature.shape.begin(), feature.shape.end());
    batch.fields[feature.key] = torch::randn(sizes, dtype);
  }
  batch.fields["action"] = torch::randn({shape.rows, shape.chunk, features.outputs.at(0).shape.at(0)}, dtype);
  // Row r ends r actions early.
  const at::Tensor last = shape.chunk - torch::arange(shape.rows).unsqueeze(1);
  batch.fields["action_is_pad"] = torch::arange(shape.chunk).unsqueeze(0) >= last.clamp_min(1);
  batch.weight = torch::ones({shape.rows});
  batch.position = torch::arange(shape.rows);
  batch.step = 3;
  return batch;
}

Batch take_rows(const Batch& batch, int64_t begin, int64_t end, int64_t padding) {
  const at::Tensor rows = at::cat({torch::arange(begin, end), torch::zeros({padding}, at::kLong)});
  Batch part;
  for (const auto& [key, field] : batch.fields) part.fields[key] = field.index_select(0, rows);
  part.weight = at::cat({batch.weight.slice(0, begin, end), torch::zeros({padding})});
  part.position = batch.position.index_select(0, rows);
  part.step = batch.step;
  return part;
}

PolicyLoss loss_of(Policy& policy, const Batch& batch) {
  return policy.compute_loss(batch, policy.loss_counts(batch), StepRandom(1000, batch.step, batch.position));
}

double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor reference = expected.detach().to(at::kDouble);
  const double largest = reference.abs().max().item<double>();
  return (actual.detach().to(at::kDouble) - reference).abs().max().item<double>() / (largest == 0 ? 1 : largest);
}

}  // namespace vla
