// A dataset seen under other names: what a policy trained elsewhere calls its cameras, state and actions. Wraps a Dataset and shares its
// threading. Everything wrong with the names throws UsageError naming both sides.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "worker/data/dataset.hpp"

namespace vla::data {

// `rename_map` has entries "dataset_key=policy_key"; empty gives `dataset` itself. Features, statistics, requests and layouts use the
// policy's keys; features that are not named keep theirs.
std::shared_ptr<const Dataset> rename_features(std::shared_ptr<const Dataset> dataset, const std::vector<std::string>& rename_map);

// UsageError when the dataset lacks one of the keys that a policy wants: lists both sides and suggests a rename_map.
void require_features(const Dataset& dataset, const std::vector<std::string>& wanted);

}  // namespace vla::data
