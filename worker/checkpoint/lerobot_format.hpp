// A policy as LeRobot 0.6.1 stores it in the folder pretrained_model/: weights under the reference's names,
// config.json, and the pre- and postprocessor with the dataset's statistics. LeRobot's from_pretrained and
// make_pre_post_processors read what is written here, and policies that LeRobot trained are read. Files are untrusted;
// what does not fit throws Error or UsageError naming file and key.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "worker/checkpoint/checkpoint_files.hpp"
#include "worker/policies/policy.hpp"

namespace vla {

// Parameters and buffers by name: the live tensors.
TensorMap state_dict(const Policy& policy);

inline constexpr char kModelFolder[] = "pretrained_model";
inline constexpr char kEmaModelFolder[] = "pretrained_model_ema";

// `train_config` is stored as train_config.json for people; neither LeRobot nor we load it. `stats` are the whole
// dataset's. `weights` (an EMA's, for example) are stored instead of the policy's tensors of the same names.
void add_pretrained_model(CheckpointFiles& files, const std::string& type, const Policy& policy,
                          const data::DatasetStats& stats, const std::string& train_config,
                          const std::string& folder = kModelFolder, const TensorMap& weights = {});

// The options of a table as JSON, dotted names nested; paths and options of a single start left out.
std::string options_as_json(const cxxrun::OptionTable& table);

// The folder with config.json that the user meant by `path`: itself, its pretrained_model/ or last/pretrained_model/.
// UsageError when there is none.
std::filesystem::path find_pretrained_model(const std::filesystem::path& path);

struct PretrainedConfig {
  std::string type;
  std::unique_ptr<PolicyOptions> options;
  PolicyFeatures features;
};
// Keys of config.json that neither the policy nor LeRobot has are an error that names them and the nearest ones. LeRobot's that our
// training has no use for (license, tags, …) are kept in the option lerobot_keys, from which add_pretrained_model stores them again.
PretrainedConfig read_pretrained_config(const std::filesystem::path& pretrained_model);
// Error when a feature that is normalized has none. Checkpoints trained on several datasets have a set of statistics of each, named
// "<set>.<feature>.<stat>"; `set` chooses one.
data::DatasetStats read_pretrained_stats(const std::filesystem::path& pretrained_model, const std::string& set = "");

}  // namespace vla
