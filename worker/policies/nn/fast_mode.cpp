#include "worker/policies/nn/fast_mode.hpp"

#include <atomic>

namespace vla {
namespace {

std::atomic<bool> is_fast = false;

}  // namespace

bool fast_mode() { return is_fast.load(std::memory_order_relaxed); }

void set_fast_mode(bool on) { is_fast.store(on, std::memory_order_relaxed); }

}  // namespace vla
