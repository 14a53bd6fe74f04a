// Looks for everything in a dataset that would stop a training or spoil it. Reads every row and decodes every picture, with several
// threads; the report does not depend on their number. Goes on after a broken episode. Throws UsageError only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "worker/data/inspect/finding.hpp"

namespace vla::data {

struct CheckOptions {
  std::string root;
  std::vector<int64_t> episodes = {};  // empty = all
  bool decode = true;
  double tolerance_s = 1e-4;
  int64_t threads = 1;
};

// `progress`: called with the numbers of episodes done and of all, one call at a time, from any thread.
CheckReport check_dataset(const CheckOptions& options, const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace vla::data
