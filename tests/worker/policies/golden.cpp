#include "tests/worker/policies/golden.hpp"

#include <cmath>
#include <fstream>

#include <boost/crc.hpp>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "worker/optim/optimizer.hpp"
#include "worker/optim/precision.hpp"

namespace vla {
namespace {

// murmur3's finaliser of (crc32 of the name) ^ index, as a number in [-1, 1), scaled by the kind of tensor.
at::Tensor formula(const std::string& name, at::IntArrayRef shape) {
  at::Tensor tensor = torch::empty(shape, at::kFloat);
  auto* values = tensor.data_ptr<float>();
  boost::crc_32_type crc;
  crc.process_bytes(name.data(), name.size());
  const uint32_t start = crc.checksum();
  const float fan = static_cast<float>(std::sqrt(3.0 / static_cast<double>(c10::multiply_integers(shape.slice(std::min<size_t>(1, shape.size()))))));
  const bool around_one = name.ends_with(".weight") || name.ends_with("running_var");
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    uint32_t x = start ^ static_cast<uint32_t>(i);
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    x ^= x >> 16;
    const float v = static_cast<float>(static_cast<int64_t>(x >> 8) - (1 << 23)) / 8388608.0f;
    values[i] = shape.size() >= 2 ? v * fan : around_one ? 1.0f + 0.1f * v : 0.1f * v;
  }
  return tensor;
}

at::Tensor fingerprint(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kCPU, at::kDouble).flatten();
  at::Tensor head = torch::zeros({8}, at::kDouble);
  const int64_t count = std::min<int64_t>(8, flat.numel());
  head.slice(0, 0, count).copy_(flat.slice(0, 0, count));
  return at::cat({flat.sum().unsqueeze(0), flat.abs().sum().unsqueeze(0), head});
}

}  // namespace

Golden::Golden(const std::string& folder, const std::string& file)
    : folder_(std::string(TEST_DATA_DIR) + "/goldens/" + folder + "/"),
      tensors_(load_safetensors(folder_ + file)),
      config_(read_pretrained_config(folder_)) {
  for (auto& [name, tensor] : tensors_) tensor = tensor.to(test_device());
}

nlohmann::json Golden::json(const std::string& file) const { return nlohmann::json::parse(std::ifstream(folder_ + file)); }

Batch Golden::raw_batch() const {
  Batch batch;
  for (const auto& [name, tensor] : tensors_) {
    if (!name.starts_with("raw/")) continue;
    const std::string key = name.substr(4);
    if (key == "dataset_index" || key.starts_with("observation.language")) continue;
    if (key.ends_with("_is_pad")) {
      batch.fields[key] = tensor.to(at::kBool);
    } else if (tensor.scalar_type() == at::kByte) {
      batch.fields[key] = tensor.to(at::kFloat).div_(torch::tensor(255.0f, tensor.device()));
    } else {
      batch.fields[key] = tensor.clone();
    }
  }
  const int64_t rows = batch.at("action").size(0);
  batch.weight = torch::ones({rows});
  batch.position = torch::arange(rows);
  return on_device(std::move(batch), test_device());
}

Normalizer Golden::normalizer(const PolicyOptions& options) const {
  TensorMap stats;
  for (const auto& [name, tensor] : tensors_) {
    if (!name.starts_with("stats/")) continue;
    std::string key = name.substr(6);
    key[key.rfind('/')] = '.';
    stats[key] = tensor;
  }
  return {options.normalization(), config_.features, stats_from_tensors(stats), test_device()};
}

void fill_by_formula(torch::nn::Module& module, const std::vector<std::string>& left) {
  const torch::NoGradGuard no_grad;
  for (auto& [name, tensor] : named_tensors(module)) {
    if (std::ranges::none_of(left, [&](const std::string& ending) { return name.ends_with(ending); })) tensor.copy_(formula(name, tensor.sizes()));
  }
}

void prepare(torch::nn::Module& policy, const std::vector<std::string>& left) {
  fill_by_formula(policy, left);
  policy.to(test_device());
  apply_tf32({});
}

double fingerprint_error(const at::Tensor& tensor, const at::Tensor& recorded) {
  const at::Tensor expected = recorded.cpu(), difference = (fingerprint(tensor) - expected).abs();
  if (difference.max().item<double>() == 0) return 0;
  const double sums = (difference.slice(0, 0, 2).max() / expected[1]).item<double>();
  return std::max(sums, difference.slice(0, 2).max().item<double>() / tensor.abs().max().item<double>());
}

std::map<std::string, at::Tensor> named_tensors(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& entry : module.named_parameters()) tensors[entry.key()] = entry.value();
  for (const auto& entry : module.named_buffers()) tensors[entry.key()] = entry.value();
  return tensors;
}

size_t expect_same_names(const Policy& policy, const nlohmann::json& listing) {
  std::map<std::string, std::vector<int64_t>> expected[2], actual[2];  // parameters, buffers
  for (const auto& row : listing.at("tensors")) {
    expected[row.at("kind") != "param"][row.at("name")] = row.at("shape").get<std::vector<int64_t>>();
  }
  for (const auto& entry : policy.named_parameters()) actual[0][entry.key()] = entry.value().sizes().vec();
  for (const auto& entry : policy.named_buffers()) actual[1][entry.key()] = entry.value().sizes().vec();
  EXPECT_EQ(actual[0], expected[0]);
  EXPECT_EQ(actual[1], expected[1]);
  return actual[0].size() + actual[1].size();
}

size_t expect_formula_weights(const Policy& policy, const Golden& golden) {
  size_t compared = 0;
  for (const auto& [name, tensor] : named_tensors(policy)) {
    if (!golden.has("paramsum/" + name)) continue;
    EXPECT_LE(fingerprint_error(tensor, golden("paramsum/" + name)), 1e-12) << name;
    ++compared;
  }
  return compared;
}

size_t expect_gradients(const Policy& policy, const Golden& golden, const Except& differs, double tolerance) {
  std::map<std::string, at::Tensor> gradients;
  for (const auto& entry : policy.named_parameters()) gradients[entry.key()] = entry.value().grad();
  double worst = 0;
  size_t compared = 0;
  for (const auto& [name, expected] : golden.tensors()) {
    if (!name.starts_with("grad/") && !name.starts_with("gradsum/")) continue;
    const std::string parameter = name.substr(name.find('/') + 1);
    if (differs && differs(parameter)) continue;
    if (!gradients[parameter].defined()) {
      ADD_FAILURE() << parameter << " has no gradient";
      continue;
    }
    const double error = name.starts_with("grad/") ? relative_error(gradients[parameter], expected) : fingerprint_error(gradients[parameter], expected);
    EXPECT_LE(error, tolerance) << name;
    worst = std::max(worst, error);
    ++compared;
  }
  std::printf("largest relative error of a gradient: %.2g (%zu comparisons)\n", worst, compared);
  return compared;
}

size_t expect_after_step(const Policy& policy, const Golden& golden, const Except& differs, double tolerance) {
  size_t compared = 0;
  for (const auto& [name, tensor] : named_tensors(policy)) {
    if (!golden.has("aftersum/" + name)) continue;
    ++compared;
    if (differs && differs(name)) continue;
    EXPECT_LE(fingerprint_error(tensor, golden("aftersum/" + name)), tolerance) << name;
    if (!golden.has("after/" + name)) continue;
    EXPECT_LE(relative_error(tensor, golden("after/" + name)), tolerance) << name;
  }
  return compared;
}

void expect_losses(Policy& policy, const std::function<PolicyLoss()>& loss, double lr_factor, const at::Tensor& expected, double tolerance) {
  Optimizer optimizer(policy.parameter_groups(), policy.options().optimizer_preset());
  optimizer.set_lr_factor(lr_factor);
  for (int64_t step = 0; step < 5; ++step) {
    policy.zero_grad();
    const at::Tensor value = loss().loss;
    value.backward();
    EXPECT_LE(relative_error(value, expected[step]), tolerance) << "step " << step;
    optimizer.clip_grad_norm();
    optimizer.step();
  }
}

void use_doubles(Policy& policy, Batch& batch) {
  policy.to(at::kDouble);
  for (auto& [key, field] : batch.fields) field = field.is_floating_point() ? field.to(at::kDouble) : field;
}

}  // namespace vla
