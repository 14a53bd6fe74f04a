#include "worker/policies/smolvla/smolvla_policy.hpp"

#include <torch/torch.h>

#include "common/error.hpp"
#include "worker/image_ops.hpp"
#include "worker/policies/nn/fast_mode.hpp"
#include "worker/policies/nn/flow_matching.hpp"
#include "worker/policies/nn/precision.hpp"
#include "worker/policies/nn/random_init.hpp"
#include "worker/policies/nn/resize_pixels.hpp"
#include "worker/policies/smolvla/pretrained_vlm.hpp"

namespace vla {
namespace {

constexpr char kTokens[] = "observation.language.tokens", kTokenMask[] = "observation.language.attention_mask";

void require_image_size(const SmolVlaOptions& options, const SmolVlmConfig& config) {
  const std::vector<int64_t>& size = options.resize_imgs_with_padding;
  if (size[0] == size[1] && size[0] % config.token_pixels() == 0) return;
  throw cxxrun::UsageError("policy.resize_imgs_with_padding = [{}, {}] does not fit {}: both must be the same multiple of {}", size[0], size[1],
                           options.vlm_model_name, config.token_pixels());
}

// As LeRobot lists them in config.json.
PolicyFeatures with_empty_cameras(PolicyFeatures features, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const std::string key = empty_camera_key(i);
    if (std::ranges::find(features.inputs, key, &PolicyFeature::key) == features.inputs.end()) {
      features.inputs.push_back({key, data::FeatureType::kVisual, {3, 480, 640}});
    }
  }
  return features;
}

at::Tensor last_step(const at::Tensor& x, int64_t dims) { return x.dim() > dims ? x.select(1, -1) : x; }

const uint32_t kNoise = random_stream("flow_noise"), kTime = random_stream("flow_time");

at::Tensor flow_time(const StepRandom& random, at::ScalarType dtype) {  // [B]
  return (random.uniform(kTime, {1}, at::kDouble).pow(1 / 1.5) * 0.999 + 0.001).to(dtype).squeeze(1);
}

at::Tensor pad_to(const at::Tensor& x, int64_t size) { return at::constant_pad_nd(x, {0, size - x.size(-1)}); }

}  // namespace

SmolVlaPolicy::SmolVlaPolicy(const SmolVlaOptions& options, const PolicyFeatures& features) : options_(options), features_(with_empty_cameras(features, options.empty_cameras)) {
  options_.validate(features_);
  const SmolVlmConfig config = pretrained_sizes(options_.vlm_model_name);
  require_image_size(options_, config);
  action_dim_ = std::ranges::find(features_.outputs, "action", &PolicyFeature::key)->shape[0];
  vocab_size_ = config.vocab_size;
  at::Tensor frame;
  if (options_.add_image_special_tokens) {
    frame = image_frame_tokens(options_.vlm_model_name);
    require_in_vocabulary(frame, vocab_size_, options_.vlm_model_name);
  }
  {
    const ParallelRandomInit on_all_cores;
    model_ = register_module("model", std::make_shared<SmolVlaModel>(options_, config, frame));
  }
  if (options_.load_vlm_weights && !options_.weights_follow) model_->transformers().load_vlm(pretrained_folder(options_.vlm_model_name));
  apply_layout();
}

void SmolVlaPolicy::apply_layout() {
  for (at::Tensor& parameter : model_->transformers().bfloat16_parameters()) parameter.set_data(parameter.to(at::kBFloat16));
}

void SmolVlaPolicy::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  Module::to(device, dtype, non_blocking);
  if (dtype == at::kFloat) apply_layout();
}

void SmolVlaPolicy::to(torch::Dtype dtype, bool non_blocking) {
  Module::to(dtype, non_blocking);
  if (dtype == at::kFloat) apply_layout();
}

void SmolVlaPolicy::set_tasks(const std::vector<std::string>& texts) {
  if (!tokenizer_ && !texts.empty()) tokenizer_ = std::make_unique<TaskTokenizer>(*options_.text_processor());
  tasks_ = texts.empty() ? TaskTokens{} : tokenizer_->tokenize(texts);
  if (tasks_.tokens.defined()) require_in_vocabulary(tasks_.tokens, vocab_size_, options_.vlm_model_name);
}

bool SmolVlaPolicy::takes_image_bytes() const { return fast_mode(); }  // resizing reads them

void SmolVlaPolicy::observe_images(const Batch& batch, SmolVlaObservation& observation) const {
  const std::string vision = frozen_key(FrozenLevel::kVision), scene = frozen_key(FrozenLevel::kPrefix);
  if (batch.has(vision)) observation.vision = batch.at(vision);
  if (batch.has(scene)) observation.scene = batch.at(scene);
  const bool is_cached = observation.vision.defined() || observation.scene.defined();
  std::vector<at::Tensor> images, valid;
  const at::Tensor all = at::ones({batch.rows()}, observation.state.options().dtype(at::kBool));
  for (const PolicyFeature& input : features_.inputs) {
    if (input.type != data::FeatureType::kVisual || (is_cached ? is_empty_camera(input.key) : !batch.has(input.key))) continue;
    const std::string mask = input.key + "_padding_mask";
    valid.push_back(batch.has(mask) ? batch.at(mask).to(at::kBool) : all);
    if (is_cached) continue;
    images.push_back(last_step(batch.at(input.key), 4));
  }
  if (valid.empty()) throw cxxrun::Error("a batch for policy smolvla has no image: at least one camera is needed");
  const int64_t height = options_.resize_imgs_with_padding[1], width = options_.resize_imgs_with_padding[0];
  if (!is_cached && fast_mode()) {
    observation.images = resize_cameras(images, height, width, observation.state.scalar_type());
  } else if (!is_cached) {
    for (at::Tensor& image : images) image = resize_with_pad(image, height, width, PadPlace::kLeftTop);
    observation.images = at::cat(images) * 2.0 - 1.0;
  }
  for (int64_t i = 0; i < options_.empty_cameras; ++i) valid.push_back(at::zeros_like(all));
  observation.image_valid = at::stack(valid, 1);
}

SmolVlaObservation SmolVlaPolicy::observe(const Batch& batch) {
  SmolVlaObservation observation;
  observation.state = pad_to(last_step(batch.at("observation.state"), 2), options_.max_state_dim);
  observe_images(batch, observation);

  if (batch.has(kTokens)) {
    observation.tokens = batch.at(kTokens);
    observation.token_valid = batch.at(kTokenMask).to(at::kBool);
  } else if (tasks_.tokens.defined()) {
    const at::Tensor& task = batch.at("task_index");
    if (tasks_.tokens.device() != task.device()) tasks_ = {tasks_.tokens.to(task.device()), tasks_.valid.to(task.device())};
    observation.tokens = tasks_.tokens.index_select(0, task);
    observation.token_valid = tasks_.valid.index_select(0, task);
  } else {
    throw cxxrun::DataError("policy smolvla reads tasks, but the dataset has none: give its episodes a task each");
  }
  return observation;
}

torch::Tensor SmolVlaPolicy::frozen_features(FrozenLevel level, const Batch& batch) {
  const torch::NoGradGuard no_grad;
  VlmWithExpert& transformers = model_->transformers();
  if (level == FrozenLevel::kVision) {
    if (!transformers.has_frozen_vision()) {
      throw cxxrun::UsageError("training.frozen_cache = vision, but the vision tower learns: set policy.freeze_vision_encoder or policy.train_expert_only, or the cache off");
    }
    return model_->see(observe(batch));
  }
  if (!transformers.has_frozen_text()) {
    throw cxxrun::UsageError("training.frozen_cache = prefix, but the SmolVLM learns: set policy.train_expert_only, or take training.frozen_cache=vision");
  }
  const at::Tensor scene = model_->encode_scene(observe(batch));
  if (options_.prefix_length > scene.size(3) + 1) {
    throw cxxrun::UsageError("training.frozen_cache = prefix does not go with policy.prefix_length = {}, which pads the prefix: take training.frozen_cache=vision",
                             options_.prefix_length);
  }
  return scene;
}

torch::Tensor SmolVlaPolicy::loss_counts(const Batch& batch) const {
  return at::stack({valid_actions(batch).sum(at::kDouble) * static_cast<double>(action_dim_), batch.weight.sum(at::kDouble)});
}

PolicyLoss SmolVlaPolicy::compute_loss(const Batch& batch, const torch::Tensor& counts, const StepRandom& random) {
  const bool has_kernels = batch.weight.is_cpu() || batch.at("action").scalar_type() != at::kDouble;
  if (fast_mode() && has_kernels) return fused_loss(batch, counts, random);
  const at::Tensor actions = pad_to(at_least_float(batch.at("action")), options_.max_action_dim);
  const at::ScalarType dtype = actions.scalar_type();
  const at::Tensor noise = random.normal(kNoise, {options_.chunk_size, options_.max_action_dim}, dtype);
  const at::Tensor time = flow_time(random, dtype);
  const at::Tensor share = time.view({-1, 1, 1});
  const at::Tensor between = share * noise + (1 - share) * actions;
  const at::Tensor velocity = model_->velocity(model_->encode(model_->embed_prefix(observe(batch))), between, time);
  const at::Tensor error = (noise - actions - at_least_float(velocity)).square();  // [B, chunk, max_action_dim]

  const at::Tensor denominators = counts.clamp_min(1).to(dtype);
  const double per_row = static_cast<double>(options_.chunk_size * action_dim_);
  const at::Tensor own = error.slice(2, 0, action_dim_), weight = batch.weight.to(dtype).view({-1, 1, 1});
  const at::Tensor valid = (own * valid_actions(batch).unsqueeze(-1)).sum();
  const at::Tensor over_all = valid / (denominators[1] * per_row);
  const auto mean_over_rows = [&](const at::Tensor& x) {
    return (x * weight).sum() / (denominators[1] * static_cast<double>(x.size(1) * x.size(2)));
  };
  at::Tensor loss = valid / denominators[0];
  if (options_.loss_version == "0.5.1") loss = over_all;
  if (options_.loss_version == "0.5.0") loss = mean_over_rows(error);
  return {loss, {{"losses_after_forward", mean_over_rows(own.detach())}, {"losses_after_in_ep_bound", over_all.detach()},
                 {"losses_after_rm_padding", over_all.detach()}}};
}

PolicyLoss SmolVlaPolicy::fused_loss(const Batch& batch, const torch::Tensor& counts, const StepRandom& random) {
  const at::Tensor actions = batch.at("action").contiguous();
  const at::ScalarType dtype = actions.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor noise = random.normal(kNoise, {options_.chunk_size, options_.max_action_dim}, dtype).contiguous(), time = flow_time(random, dtype);
  const SmolVlaMemory memory = model_->encode(model_->embed_prefix(observe(batch)));
  const at::Tensor velocity = model_->velocity(memory, flow_input(actions, noise, time), time).to(actions.scalar_type());
  const at::Tensor sums = flow_loss_sums(velocity, actions, noise, batch.at("action_is_pad"), batch.weight);

  const at::Tensor denominators = counts.clamp_min(1).to(dtype), rows = denominators[1] * static_cast<double>(options_.chunk_size);
  const at::Tensor over_all = sums[kValidActions] / (rows * static_cast<double>(action_dim_)), own = sums.detach()[kActions] / (rows * static_cast<double>(action_dim_));
  at::Tensor loss = sums[kValidActions] / denominators[0];
  if (options_.loss_version == "0.5.1") loss = over_all;
  if (options_.loss_version == "0.5.0") loss = sums[kEverything] / (rows * static_cast<double>(options_.max_action_dim));
  return {loss, {{"losses_after_forward", own}, {"losses_after_in_ep_bound", over_all.detach()}, {"losses_after_rm_padding", over_all.detach()}}};
}

torch::Tensor SmolVlaPolicy::sample_chunk(const Batch& batch, const StepRandom& random) {
  static const uint32_t kStart = random_stream("sample_noise");
  const torch::NoGradGuard no_grad;
  const at::ScalarType dtype = model_->dtype() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor noise = random.normal(kStart, {options_.chunk_size, options_.max_action_dim}, dtype);
  return model_->sample(observe(batch), noise).slice(2, 0, action_dim_);
}

}  // namespace vla
