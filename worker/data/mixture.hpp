// Several datasets as one: their samples one after another, episodes numbered anew from 0, tasks of equal text merged, and of their
// features those that all have. Statistics are merged as LeRobot's aggregate_stats does, whatever the weights. How often each part is
// seen is the sampler's business (SamplerOptions::parts). Immutable; shares its parts.
#pragma once

#include <memory>
#include <vector>

#include "worker/data/dataset.hpp"
#include "worker/data/sampler.hpp"

namespace vla::data {

struct MixtureEntry {
  std::shared_ptr<const Dataset> dataset;
  double weight = 0;  // relative to the others'; 0 in all: in proportion to the number of samples
};

// UsageError when a feature has different shapes or dtypes in two parts, naming both. Features that some part lacks are left out with
// a note. Errors while reading name the part.
std::shared_ptr<const Dataset> mix_datasets(std::vector<MixtureEntry> entries);

// For SamplerOptions::parts. Empty where no weight is given; UsageError when only some are, or one is negative.
std::vector<SamplerPart> sampler_parts(const std::vector<MixtureEntry>& entries);

}  // namespace vla::data
