// What a policy's golden test needs: a folder of tests/data/goldens with a case that LeRobot 0.6.1 recorded, and comparisons with it.
// Weights are a formula of their names, so that only inputs, random numbers and results are stored (golden.safetensors: raw/* the batch
// of the dataset, norm/* the normalized one, stats/*, rand/*, out/*, grad/*, gradsum/*, after/*, aftersum/*, losses/*). Everything is on test_device().
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/worker/policies/support.hpp"
#include "worker/checkpoint/lerobot_format.hpp"
#include "worker/checkpoint/safetensors.hpp"
#include "worker/policies/normalizer.hpp"

namespace vla {

// Other kernels than the reference's on a GPU.
inline const double kGoldenTolerance = test_device().is_cuda() ? 1e-4 : 1e-5;

class Golden {
 public:
  // `file`: of the tensors. config.json gives options and features.
  explicit Golden(const std::string& folder, const std::string& file = "golden.safetensors");

  const at::Tensor& operator()(const std::string& name) const { return tensors_.at(name); }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  const TensorMap& tensors() const { return tensors_; }
  nlohmann::json json(const std::string& file) const;
  const PretrainedConfig& config() const { return config_; }

  Batch raw_batch() const;  // rows of weight 1 at positions 0, 1, …; images float32 in [0, 1]
  Normalizer normalizer(const PolicyOptions& options) const;

 private:
  std::string folder_;
  TensorMap tensors_;
  PretrainedConfig config_;
};

// Sets every parameter and buffer by the formula, but for names that end like one of `left`.
void fill_by_formula(torch::nn::Module& module, const std::vector<std::string>& left = {});

// The same for a policy that is compared with a Golden: moved to test_device(), where it computes without TF32.
void prepare(torch::nn::Module& policy, const std::vector<std::string>& left = {});

// The sums of a tensor and of its absolute values relative to the latter, its first eight values relative to its largest, compared with
// the recorded float64 [10].
double fingerprint_error(const at::Tensor& tensor, const at::Tensor& expected);

std::map<std::string, at::Tensor> named_tensors(const torch::nn::Module& module);  // parameters and buffers

// Each returns how many tensors it compared. `differs` says which names are compared in another way by the caller.
using Except = std::function<bool(const std::string& name)>;
size_t expect_same_names(const Policy& policy, const nlohmann::json& listing);  // tensors.json
size_t expect_formula_weights(const Policy& policy, const Golden& golden);
size_t expect_gradients(const Policy& policy, const Golden& golden, const Except& differs = nullptr, double tolerance = kGoldenTolerance);
size_t expect_after_step(const Policy& policy, const Golden& golden, const Except& differs = nullptr, double tolerance = kGoldenTolerance);

// Losses before each of five optimizer steps; every group's learning rate is the preset's times `lr_factor`.
void expect_losses(Policy& policy, const std::function<PolicyLoss()>& loss, double lr_factor, const at::Tensor& expected,
                   double tolerance = kGoldenTolerance);

void use_doubles(Policy& policy, Batch& batch);

}  // namespace vla
