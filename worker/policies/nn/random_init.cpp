#include "worker/policies/nn/random_init.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/library.h>

#include "common/on_all_cores.hpp"

namespace vla {
namespace {

// A key that LibTorch keeps for modes of this kind and never sets by itself.
constexpr auto kMode = c10::DispatchKey::TESTING_ONLY_GenericMode;

constexpr int64_t kLarge = 1 << 20;  // elements
constexpr int64_t kPiece = 1 << 18;  // elements that are drawn from a generator of their own

using Fill = at::Tensor& (at::Tensor::*)(double, double, std::optional<at::Generator>) const;

struct Draw {
  at::Tensor values;  // [elements]
  Fill fill;
  double a, b;
};
using Draws = std::vector<Draw>;

thread_local Draws* later = nullptr;  // null in the mode: nothing is drawn

template <Fill kFill>
at::Tensor& draw_now_or_later(at::Tensor& self, double a, double b, std::optional<at::Generator> generator) {
  if (later == nullptr) return self;
  if (self.numel() < kLarge || generator || self.scalar_type() != at::kFloat || !self.is_cpu() || !self.is_contiguous()) {
    const c10::impl::ExcludeDispatchKeyGuard at_once(kMode);
    return (self.*kFill)(a, b, generator);
  }
  std::erase_if(*later, [&](const Draw& draw) { return draw.values.const_data_ptr() == self.const_data_ptr(); });
  later->push_back({self.detach().view({-1}), kFill, a, b});
  return self;
}

uint64_t seed_of_default_generator() {
  auto* generator = at::get_generator_or_default<at::CPUGeneratorImpl>(std::nullopt, at::detail::getDefaultCPUGenerator());
  const std::scoped_lock lock(generator->mutex_);
  return generator->random64();
}

void draw_all(const Draws& draws) {
  const uint64_t seed = seed_of_default_generator();
  std::vector<std::pair<const Draw*, int64_t>> pieces;  // and their first element
  for (const Draw& draw : draws) {
    for (int64_t first = 0; first < draw.values.numel(); first += kPiece) pieces.emplace_back(&draw, first);
  }
  cxxrun::on_all_cores(pieces.size(), [&](size_t i) {
    const at::NoGradGuard no_grad;
    const auto& [draw, first] = pieces[i];
    const at::Tensor piece = draw->values.narrow(0, first, std::min(kPiece, draw->values.numel() - first));
    (piece.*draw->fill)(draw->a, draw->b, at::detail::createCPUGenerator(seed + i));
  });
}

}  // namespace

SkipRandomInit::SkipRandomInit() : on_(kMode), around_(std::exchange(later, nullptr)) {}

SkipRandomInit::~SkipRandomInit() { later = static_cast<Draws*>(around_); }

ParallelRandomInit::ParallelRandomInit() {
  if (c10::impl::tls_is_dispatch_key_included(kMode)) return;
  on_.emplace(kMode);
  later = new Draws;
}

ParallelRandomInit::~ParallelRandomInit() {
  if (!on_) return;
  on_.reset();
  const std::unique_ptr<Draws> draws(std::exchange(later, nullptr));
  if (!draws->empty()) draw_all(*draws);
}

}  // namespace vla

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) { library.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("uniform_", &vla::draw_now_or_later<&at::Tensor::uniform_>);
  library.impl("normal_", &vla::draw_now_or_later<&at::Tensor::normal_>);
}
