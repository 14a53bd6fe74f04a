#include "worker/policies/nn/skip_init.hpp"

#include <torch/library.h>

namespace vla {
namespace {

at::Tensor& leave(at::Tensor& self, double, double, std::optional<at::Generator>) { return self; }

// A key that LibTorch keeps for modes of this kind and never sets by itself.
constexpr auto kMode = c10::DispatchKey::TESTING_ONLY_GenericMode;

}  // namespace

SkipRandomInit::SkipRandomInit() : on_(kMode) {}

}  // namespace vla

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) { library.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("uniform_", &vla::leave);
  library.impl("normal_", &vla::leave);
}
