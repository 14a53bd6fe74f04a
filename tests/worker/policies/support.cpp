#include "tests/worker/policies/support.hpp"

#include <torch/torch.h>

#include "common/worker_env.hpp"

namespace vla {
namespace {

const std::map<std::string, double> kSmall = {{"chunk_size", 6}, {"n_action_steps", 6}, {"dim_model", 32}, {"n_heads", 4},
                                              {"dim_feedforward", 48}, {"n_encoder_layers", 2}, {"n_vae_encoder_layers", 1},
                                              {"latent_dim", 4}, {"n_obs_steps", 2}, {"horizon", 8}, {"n_groups", 4},
                                              {"diffusion_step_embed_dim", 16}, {"spatial_softmax_num_keypoints", 4},
                                              {"num_inference_steps", 5}, {"max_state_dim", 8}, {"max_action_dim", 8},
                                              {"num_vlm_layers", 4}, {"num_steps", 3}};
const std::map<std::string, std::string> kSmallParts = {{"vlm_model_name", TEST_DATA_DIR "/goldens/smolvla/vlm"}};
const std::map<std::string, std::vector<int64_t>> kSmallSizes = {{"down_dims", {16, 32}}, {"resize_imgs_with_padding", {64, 64}}};
constexpr int64_t kVocabulary = 256;  // of the vision-language model of kSmallParts

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
    if (row.name == "n_obs_steps" && row.maximum == 1) continue;  // ACT and SmolVLA see one
    if (auto* text = std::get_if<std::string*>(&row.value); text && kSmallParts.contains(row.name)) **text = kSmallParts.at(row.name);
    if (auto* sizes = std::get_if<std::vector<int64_t>*>(&row.value); sizes && kSmallSizes.contains(row.name)) **sizes = kSmallSizes.at(row.name);
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
  data::SampleRequest request;
  for (const PolicyFeature& feature : features.inputs) request.push_back({feature.key, {}});
  request.push_back({"action", std::vector<int64_t>(static_cast<size_t>(shape.chunk))});
  return random_batch(request, features, shape.rows, dtype);
}

Batch random_batch(const data::SampleRequest& request, const PolicyFeatures& features, int64_t rows, at::ScalarType dtype) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto* list : {&features.inputs, &features.outputs}) {
    for (const PolicyFeature& feature : *list) shapes[feature.key] = feature.shape;
  }
  Batch batch;
  for (const data::FieldRequest& field : request) {
    std::vector<int64_t> sizes{rows};
    if (!field.deltas.empty()) sizes.push_back(static_cast<int64_t>(field.deltas.size()));
    const auto& shape = shapes.at(field.key);
    sizes.insert(sizes.end(), shape.begin(), shape.end());
    batch.fields[field.key] = torch::randn(sizes, dtype);
  }
  // Row r ends r actions early.
  const int64_t chunk = batch.at("action").size(1);
  const at::Tensor last = chunk - torch::arange(rows).unsqueeze(1);
  batch.fields["action_is_pad"] = torch::arange(chunk).unsqueeze(0) >= last.clamp_min(1);
  // Tasks of five to seven tokens, for policies that read them.
  batch.fields["observation.language.tokens"] = torch::randint(3, kVocabulary, {rows, 7}, at::kLong);
  batch.fields["observation.language.attention_mask"] = torch::arange(7).unsqueeze(0) < 5 + torch::arange(rows).unsqueeze(1) % 3;
  batch.weight = torch::ones({rows});
  batch.position = torch::arange(rows);
  batch.step = 3;
  return batch;
}

at::Device test_device() {
  const at::Device device(cxxrun::environment_variable("CXXRUN_TEST_DEVICE").value_or("cpu"));
  return device.is_cuda() && !device.has_index() ? at::Device(at::kCUDA, 0) : device;
}

Batch on_device(Batch batch, at::Device device) {
  for (auto& [key, field] : batch.fields) field = field.to(device);
  batch.weight = batch.weight.to(device);
  batch.position = batch.position.to(device);
  return batch;
}

Batch take_rows(const Batch& batch, int64_t begin, int64_t end, int64_t padding) {
  const at::Device device = batch.weight.device();
  const at::Tensor rows = at::cat({torch::arange(begin, end), torch::zeros({padding}, at::kLong)}).to(device);
  Batch part;
  for (const auto& [key, field] : batch.fields) part.fields[key] = field.index_select(0, rows);
  part.weight = at::cat({batch.weight.slice(0, begin, end), torch::zeros({padding}, device)});
  part.position = batch.position.index_select(0, rows);
  part.step = batch.step;
  return part;
}

PolicyLoss loss_of(Policy& policy, const Batch& batch) {
  return policy.compute_loss(batch, policy.loss_counts(batch), StepRandom(1000, batch.step, batch.position));
}

double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor reference = expected.detach().to(at::kCPU, at::kDouble);
  const double largest = reference.abs().max().item<double>();
  return (actual.detach().to(at::kCPU, at::kDouble) - reference).abs().max().item<double>() / (largest == 0 ? 1 : largest);
}

std::map<std::string, at::Tensor> gradients_of(const Policy& policy) {
  std::map<std::string, at::Tensor> gradients;
  for (const auto& entry : policy.named_parameters()) {
    if (entry.value().grad().defined()) gradients[entry.key()] = entry.value().grad().to(at::kCPU, entry.value().scalar_type(), false, true);
  }
  return gradients;
}

double largest_value(const std::map<std::string, at::Tensor>& tensors) {
  double largest = 0;
  for (const auto& [name, tensor] : tensors) largest = std::max(largest, tensor.abs().max().item<double>());
  return largest;
}

}  // namespace vla
