// Runs a callable when the scope ends, however it ends.
#pragma once

#include <utility>

namespace cxxrun {

template <class F>
class [[nodiscard]] ScopeExit {
 public:
  explicit ScopeExit(F action) : action_(std::move(action)) {}
  ScopeExit(const ScopeExit&) = delete;
  ScopeExit& operator=(const ScopeExit&) = delete;
  ~ScopeExit() { action_(); }

 private:
  F action_;
};

}  // namespace cxxrun
