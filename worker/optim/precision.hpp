// What training.precision means: the parameters' type, the type of autocast, TF32 and loss scaling. AutocastGuard is for
// one forward pass. Precisions that type or GPU cannot do throw UsageError.
#pragma once

#include <optional>
#include <string>

#include <ATen/autocast_mode.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace vla {

struct Precision {
  at::ScalarType parameters = at::kFloat;  // also of what the model is fed
  std::optional<at::ScalarType> autocast = {};
  bool tf32 = false;
  bool needs_scaler = false;

  // What batches are read, changed and normalised in.
  at::ScalarType batch() const { return at::isReducedFloatingType(parameters) ? at::kFloat : parameters; }
};

// `name` in any spelling of parse_precision. `parameters` is float64 in tests: then only fp32, which means no reduction,
// is possible.
Precision make_precision(const std::string& name, at::ScalarType parameters, at::Device device);

// For matrix products and convolutions of the whole process.
void apply_tf32(const Precision& precision);

// Reduced precision in this thread while it lives; weights are cast once in that time. Backward runs outside of it.
class AutocastGuard {
 public:
  AutocastGuard(const Precision& precision, at::Device device);
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;
  ~AutocastGuard();

 private:
  std::optional<at::DeviceType> device_;  // nothing to undo without
  bool was_enabled_ = false;
  at::ScalarType previous_ = at::kFloat;
};

}  // namespace vla
