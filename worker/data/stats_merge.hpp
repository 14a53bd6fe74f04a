// Statistics of several parts (episodes, datasets) as those of the whole, as LeRobot's aggregate_stats makes them: means weighted by
// count, variances by the parallel algorithm, least and largest values, quantiles as weighted means. Holds one set of statistics,
// however many parts are added. A statistic that one of a feature's parts lacks is dropped. Throws DataError naming the part.
#pragma once

#include <string>

#include "worker/data/dataset.hpp"

namespace vla::data {

class StatsMerger {
 public:
  // `frames`: the count of features that tell none. `source` names the part in messages.
  void add(const DatasetStats& part, double frames, const std::string& source);
  const DatasetStats& merged() const { return merged_; }

 private:
  DatasetStats merged_;
};

}  // namespace vla::data
