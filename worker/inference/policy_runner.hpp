// A trained policy as a robot or a simulator uses it: one raw observation in, a chunk of actions in the dataset's units out. Owns the
// model with its statistics, loaded from a checkpoint in LeRobot's layout; knows no type of policy. A Session is one stream of
// observations with the history that the policy looks back on. One thread. Observations that do not fit are DataErrors naming the key.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/policies/normalizer.hpp"
#include "worker/policies/policy.hpp"

namespace vla {

// What a checkpoint's folder holds, ready for eval mode.
struct LoadedPolicy {
  std::filesystem::path folder;  // of config.json, canonical
  std::string type;
  std::shared_ptr<Policy> policy;
  data::DatasetStats stats;
  Normalizer normalizer;
};
// `path` as for find_pretrained_model(); `ema`: the averaged weights beside the model's (UsageError where there are none). Turns TF32 off
// in the whole process.
LoadedPolicy load_policy(const std::filesystem::path& path, bool ema, at::Device device);

struct Observation {
  std::map<std::string, at::Tensor> values;  // by feature: images uint8 [height, width, channels], vectors float32 [dim]
  std::optional<std::string> task = {};
};

class PolicyRunner {
 public:
  struct Options {
    uint64_t seed = 0;  // of policies that sample
    std::string image_size = "exact";  // as in training | resize to that (antialiased, as torchvision does) | any: left to the policy
  };

  PolicyRunner(LoadedPolicy loaded, at::Device device, const Options& options);

  class Session {
    friend class PolicyRunner;
    std::deque<Observation> history_;  // the newest last; at most as many as the policy looks back on
    int64_t predictions_ = 0;
  };

  // DataError unless the policy has an input `key` of this dtype and shape.
  void require_input(const std::string& key, at::ScalarType dtype, at::IntArrayRef shape) const;
  // Adds the observation of the next time step. Requires all inputs of the policy.
  void observe(Session& session, Observation observation) const;
  // float32 [chunk, action_dim] on the CPU; its first action belongs to the newest observation. The k-th prediction of a session
  // draws the noise of row k of a batch. Requires: observe() was called.
  at::Tensor predict(Session& session);

  const LoadedPolicy& loaded() const { return loaded_; }
  const std::vector<const PolicyFeature*>& inputs() const { return inputs_; }  // that the policy reads
  int64_t history() const { return history_; }  // observations, the newest included
  bool needs_task() const { return needs_task_; }
  int64_t action_steps() const { return action_steps_; }  // of a chunk, to be executed before the next prediction

 private:
  at::Tensor input(const PolicyFeature& feature, const at::Tensor& value) const;
  int64_t task_index(const std::string& task);

  LoadedPolicy loaded_;
  at::Device device_;
  Options options_;
  at::ScalarType dtype_;
  data::SampleRequest request_;  // of the inputs
  std::vector<const PolicyFeature*> inputs_;  // of request_, row by row
  int64_t history_ = 1;
  bool needs_task_ = false;
  int64_t action_steps_ = 1;
  std::vector<std::string> tasks_;  // that the policy was told of
};

}  // namespace vla
