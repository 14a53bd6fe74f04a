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

// `train_config` is stored as train_config.json for people; neither LeRobot nor we load it. `stats` are the whole
// dataset's.
void add_pretrained_model(CheckpointFiles& files, const std::string& type, const Policy& policy,
                          const data::DatasetStats& stats, const std::string& train_config);

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
// Keys of config.json that the policy does not have are named in a warning and ignored.
PretrainedConfig read_pretrained_config(const std::filesystem::path& pretrained_model);
data::DatasetStats read_pretrained_stats(const std::filesystem::path& pretrained_model);
// Missing, unknown and mis-shaped tensors are one Error that lists them.
void load_pretrained_weights(const std::filesystem::path& pretrained_model, Policy& policy);

}  // namespace vla
