// How the initial weights of modules are drawn that are made on this thread while one of these lives. Only uniform_() and normal_() are
// meant. Scopes may be nested: SkipRandomInit counts whatever is in or around it.
#pragma once

#include <optional>

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace vla {

// What would be drawn stays as it is in memory: for weights that are about to be read from a file, where drawing them would be the longest
// part of the start.
class SkipRandomInit {
 public:
  SkipRandomInit();
  ~SkipRandomInit();

 private:
  c10::impl::IncludeDispatchKeyGuard on_;
  void* around_;
};

// Large float32 tensors on the CPU get their values when the scope ends, on all cores, and only those of the last draw where one was
// drawn several times: nothing may read or write them before. The values follow from the default generator's seed alone, whatever the
// number of cores, but are others than without this scope.
class ParallelRandomInit {
 public:
  ParallelRandomInit();
  ~ParallelRandomInit();

 private:
  std::optional<c10::impl::IncludeDispatchKeyGuard> on_;  // nullopt: within another scope, whose rule counts
};

}  // namespace vla
