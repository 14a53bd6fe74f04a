// What the tests of policies share: small features, options and random batches. No files.
#pragma once

#include <map>
#include <string>

#include "worker/policies/policy.hpp"

namespace vla {

struct BatchShape {
  int64_t rows = 4;
  int64_t chunk = 6;
};

// Two cameras "observation.images.{left,right}", "observation.state" of 5 and "action" of 3.
PolicyFeatures test_features(int64_t image = 48);

// Options of a registered policy, small enough for tests. `values` overrides numeric and boolean options by name.
std::unique_ptr<PolicyOptions> test_options(const PolicyEntry& entry, const std::map<std::string, double>& values = {});

// A normalized batch of random numbers. Some actions are padding.
Batch random_batch(const PolicyFeatures& features, const BatchShape& shape, at::ScalarType dtype = at::kFloat);
// The same of what a policy requests.
Batch random_batch(const data::SampleRequest& request, const PolicyFeatures& features, int64_t rows, at::ScalarType dtype = at::kFloat);

// The device of CXXRUN_TEST_DEVICE ("cuda"), else the CPU.
at::Device test_device();
Batch on_device(Batch batch, at::Device device);

// Rows [begin, end) of `batch`, followed by `padding` copies of its first row with weight 0.
Batch take_rows(const Batch& batch, int64_t begin, int64_t end, int64_t padding = 0);

// The loss of a batch that is a global batch by itself.
PolicyLoss loss_of(Policy& policy, const Batch& batch);

// max |a - b| / max |b|
double relative_error(const at::Tensor& actual, const at::Tensor& expected);

// Copies of the gradients of all trainable parameters, on the CPU. Those without one are left out.
std::map<std::string, at::Tensor> gradients_of(const Policy& policy);
double largest_value(const std::map<std::string, at::Tensor>& tensors);  // of all of them, in magnitude

}  // namespace vla
