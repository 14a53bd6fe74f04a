// While it lives, what is drawn at random on this thread stays as it is in memory: for modules whose weights are about to be read from
// a file, where drawing them would be the longest part of the start. Nothing but uniform_() and normal_() is left out.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace vla {

class SkipRandomInit {
 public:
  SkipRandomInit();

 private:
  c10::impl::IncludeDispatchKeyGuard on_;
};

}  // namespace vla
