// What only all episodes together tell: numbers that never change, joints that stand still in some episodes, statistics that do not
// belong to the data.
#pragma once

#include <vector>

#include "worker/data/dataset.hpp"
#include "worker/data/inspect/episode_check.hpp"
#include "worker/data/inspect/finding.hpp"

namespace vla::data {

// `summaries`: by position in dataset.episodes(). `is_whole`: they are of all episodes that the statistics were made of.
std::vector<Finding> check_whole(const Dataset& dataset, const std::vector<EpisodeSummary>& summaries, bool is_whole);

}  // namespace vla::data
