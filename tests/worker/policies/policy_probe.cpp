// policy_probe CHECKPOINT INPUT OUTPUT [--forward-only]: what a policy computes with given weights, batch and random numbers, for
// scripts that compare it with the reference library. CHECKPOINT has config.json and, unless INPUT has weights, model.safetensors.
// INPUT is a safetensors file: "weight/<name>", "batch/<key>" (normalized), "rand/<stream>" (drawn by the loss), "sample/<stream>"
// (drawn by sampling), and "lr" float64 []. OUTPUT gets "loss", "metric/<name>", "actions", "grad/<name>" and "after/<name>": the parameters
// after one optimizer step of the preset at rate lr.
#include <cstdio>
#include <cstring>

#include <torch/torch.h>

#include "common/error.hpp"
#include "common/registry.hpp"
#include "worker/checkpoint/lerobot_format.hpp"
#include "worker/checkpoint/safetensors.hpp"
#include "worker/checkpoint/weights.hpp"
#include "worker/optim/optimizer.hpp"

namespace vla {
namespace {

TensorMap below(const TensorMap& tensors, const std::string& prefix) {
  TensorMap found;
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(prefix)) found[name.substr(prefix.size())] = tensor;
  }
  return found;
}

Batch batch_of(const TensorMap& fields) {
  Batch batch;
  batch.fields = fields;
  for (auto& [key, field] : batch.fields) {
    if (key.ends_with("_is_pad") || key.ends_with("mask")) field = field.to(at::kBool);
  }
  const int64_t rows = batch.at("action").size(0);
  batch.weight = torch::ones({rows});
  batch.position = torch::arange(rows);
  return batch;
}

StepRandom random_of(const Batch& batch, const TensorMap& numbers) {
  StepRandom random(0, 0, batch.position);
  for (const auto& [stream, values] : numbers) random.replace(stream, values);
  return random;
}

void probe(const std::string& checkpoint, const std::string& input_file, const std::string& output_file, bool forward_only) {
  const PretrainedConfig config = read_pretrained_config(checkpoint);
  const auto policy = cxxrun::find_in_registry(policy_registry(), config.type, "policy type").make(*config.options, config.features);
  const TensorMap input = load_safetensors(input_file);
  if (const TensorMap weights = below(input, "weight/"); weights.empty()) {
    load_weights(checkpoint, *policy);
  } else {
    copy_by_name(weights, state_dict(*policy), input_file);
  }
  const Batch batch = batch_of(below(input, "batch/"));

  TensorMap output;
  policy->eval();
  output["actions"] = policy->sample_chunk(batch, random_of(batch, below(input, "sample/")));
  policy->train();
  const torch::AutoGradMode with_gradients(!forward_only);
  const PolicyLoss loss = policy->compute_loss(batch, policy->loss_counts(batch), random_of(batch, below(input, "rand/")));
  output["loss"] = loss.loss.detach();
  for (const auto& [name, value] : loss.metrics) output["metric/" + name] = value;
  if (!forward_only) {
    loss.loss.backward();
    OptimizerOptions preset = config.options->optimizer_preset();
    preset.lr = input.at("lr").item<double>();
    Optimizer optimizer(policy->parameter_groups(), preset);
    for (const auto& entry : policy->named_parameters()) {
      if (entry.value().grad().defined()) output["grad/" + entry.key()] = entry.value().grad().clone();
    }
    optimizer.clip_grad_norm();
    optimizer.step();
    for (const auto& entry : policy->named_parameters()) output["after/" + entry.key()] = entry.value().detach();
  }
  save_safetensors(output_file, output);
}

}  // namespace
}  // namespace vla

int main(int argc, char** argv) {
  const bool forward_only = argc == 5 && std::strcmp(argv[4], "--forward-only") == 0;
  if (argc != 4 && !forward_only) {
    std::fprintf(stderr, "usage: policy_probe CHECKPOINT INPUT OUTPUT [--forward-only]\n");
    return 2;
  }
  try {
    vla::probe(argv[1], argv[2], argv[3], forward_only);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "policy_probe: %s\n", error.what());
    return 1;
  }
}
