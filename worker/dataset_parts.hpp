// dataset.datasets: several datasets trained on together, each with a weight and a choice of episodes. In YAML a list of
// {path, weight, episodes}; on the command line and in dumps one text for each: "path=DIR;weight=0.5;episodes=0-9+12". No Torch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/train_config.hpp"

namespace vla {

struct DatasetPart {
  std::string path;
  std::optional<double> weight;  // share of the samples, relative to the other parts'; none in all: by their sizes
  std::vector<int64_t> episodes = {};  // empty = all
};

// Those of `datasets`, or the one of `root`, or that of the name `repo_id`; none when none is set. UsageError for what is not understood,
// for weights on some parts only, for a root beside them, and for a name that is not found.
std::vector<DatasetPart> dataset_parts(const DatasetOptions& options);

}  // namespace vla
