// What the trainer needs of a policy. A policy is a model and a loss on a normalized batch; sampling order, ranks, denominators,
// randomness, optimizer and checkpoints are the trainer's. Parameters carry the reference implementation's names.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "common/option_table.hpp"
#include "worker/batch.hpp"
#include "worker/data/dataset.hpp"
#include "worker/optim/options.hpp"
#include "worker/policies/nn/batch_statistics.hpp"
#include "worker/policies/nn/counter_random.hpp"

namespace vla {

enum class NormalizationMode : uint8_t { kIdentity, kMeanStd, kMinMax, kLimits, kLimitsXyz };

// A feature as the policy sees it. Images are [channels, height, width].
struct PolicyFeature {
  std::string key;
  data::FeatureType type = data::FeatureType::kOther;
  std::vector<int64_t> shape;
};

struct PolicyFeatures {
  std::vector<PolicyFeature> inputs;  // observations, in the dataset's order
  std::vector<PolicyFeature> outputs;  // actions
};

// What LeRobot's preprocessor does with a sample's task before the policy sees it.
struct TextProcessor {
  std::string new_line_step;  // registry name of the step that ends a text with a line break: "smolvla_new_line_processor"
  std::string tokenizer;  // folder or name on the Hugging Face hub
  int64_t max_length = 0;  // tokens
  std::string padding;  // "longest" or "max_length"
};

// The options of one type of policy. Stored in a checkpoint's config.json under LeRobot's names.
class PolicyOptions {
 public:
  virtual ~PolicyOptions() = default;
  virtual void describe(cxxrun::OptionTable& table) = 0;
  virtual void validate(const PolicyFeatures& features) const = 0;  // UsageError naming key and value
  virtual OptimizerOptions optimizer_preset() const = 0;
  virtual std::optional<SchedulerOptions> scheduler_preset() const { return std::nullopt; }
  virtual data::SampleRequest sample_request(const PolicyFeatures& features) const = 0;
  virtual std::map<data::FeatureType, NormalizationMode> normalization() const = 0;
  // Training does not start at the last frames of an episode, whose chunks would be mostly padding.
  virtual int64_t drop_n_last_frames() const { return 0; }
  virtual std::optional<TextProcessor> text_processor() const { return std::nullopt; }  // of policies that read tasks

 protected:
  // The option lerobot_keys, of policies that LeRobot has too.
  void describe_lerobot_keys(cxxrun::OptionTable& table);

 private:
  std::string lerobot_keys_;
};

// One optimizer group: its parameters share a learning-rate factor.
struct ParameterGroup {
  std::string name;
  double lr = 0;  // 0 = the optimizer's own lr
  std::vector<std::pair<std::string, torch::Tensor>> parameters;
};

// Every term is a sum over this micro-batch's rows divided by the global count, so that adding up over ranks and micro-batches
// gives the value of the whole global batch.
struct PolicyLoss {
  torch::Tensor loss;  // scalar; backward() starts here
  std::vector<std::pair<std::string, torch::Tensor>> metrics;  // detached scalars ("l1_loss"), same convention
};

enum class FrozenLevel : uint8_t { kVision, kPrefix };
const char* name_of(FrozenLevel level);  // "vision"
std::string frozen_key(FrozenLevel level);  // of a batch's field

class Policy : public torch::nn::Module {
 public:
  virtual const PolicyOptions& options() const = 0;
  virtual const PolicyFeatures& features() const = 0;
  virtual std::vector<ParameterGroup> parameter_groups();  // every trainable parameter once; one group unless overridden

  // float64 [n]: the denominators this micro-batch contributes to (valid action elements, rows, ...). The trainer sums them over
  // ranks and micro-batches before the first forward of a step.
  virtual torch::Tensor loss_counts(const Batch& batch) const = 0;
  // `counts` are the summed loss_counts. Train mode draws noise and dropout from `random`.
  virtual PolicyLoss compute_loss(const Batch& batch, const torch::Tensor& counts, const StepRandom& random) = 0;
  // Normalized actions, float [B, chunk, action_dim]; eval mode, no gradient. Policies that sample draw from `random`.
  virtual torch::Tensor sample_chunk(const Batch& batch, const StepRandom& random) = 0;
  torch::Tensor predict_chunk(const Batch& batch);  // the same for the same batch every time

  // For training.frozen_cache: what parts that do not learn make of each row, [B, ...], a pure function of the row's own observation and
  // task. compute_loss() takes it from the batch's field frozen_key(level) instead of computing it and then needs no image. Without
  // gradient. UsageError where there is no such part.
  virtual torch::Tensor frozen_features(FrozenLevel level, const Batch& batch);

  // Images that need no normalization may come as uint8 [B, (T,) C, H, W]: the policy has use for bytes.
  virtual bool takes_image_bytes() const { return false; }

  // Texts by task_index, for policies that read them. Given before the first batch, and again when the texts change.
  virtual void set_tasks(const std::vector<std::string>&) {}

  // A row's loss depends on the other rows of the global batch, as with synchronised batch statistics: the sum over micro-batches is
  // then that of the whole batch only for ranks that work at the same time, not for accumulation.
  virtual bool is_batch_coupled() const { return false; }

  // Backward recomputes the activations inside the policy's blocks instead of keeping them; the same gradients. UsageError from
  // policies that have no such blocks.
  virtual void set_activation_checkpointing(bool on);
  // Adds a tensor up over all ranks; given once, before training. For policies that compute statistics over the global batch.
  virtual void set_all_reduce_sum(AllReduceSum) {}
};

struct PolicyEntry {
  const char* name;  // "act"; also the "type" in config.json
  const char* help;
  std::unique_ptr<PolicyOptions> (*make_options)();
  std::shared_ptr<Policy> (*make)(const PolicyOptions& options, const PolicyFeatures& features);
};

const std::vector<PolicyEntry>& policy_registry();

}  // namespace vla
