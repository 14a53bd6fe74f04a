#include "worker/augment.hpp"

#include <algorithm>

#include <torch/torch.h>

#include "common/error.hpp"
#include "worker/color_ops.hpp"
#include "worker/image_ops.hpp"
#include "worker/policies/nn/counter_random.hpp"

namespace vla {
namespace {

enum Kind : int64_t { kBrightness, kContrast, kSaturation, kHue, kSharpness, kAffine, kNoise, kKinds };

// Where a sample's uniform numbers stand; every transform has its own, so that switching one off leaves the others alone.
constexpr int64_t kIsChanged = 0, kKeys = 1, kFactors = kKeys + kKinds, kShiftX = kFactors + kKinds, kShiftY = kShiftX + 1, kDraws = kShiftY + 1;

at::Tensor between(const at::Tensor& uniform, const std::vector<double>& range) { return uniform * (range[1] - range[0]) + range[0]; }

double weight_of(const AugmentOptions& options, int64_t kind) {
  const double weights[] = {options.brightness.weight, options.contrast.weight, options.saturation.weight, options.hue.weight,
                            options.sharpness.weight,  options.affine.weight,   options.noise.weight};
  return weights[kind];
}

struct Sample {
  const AugmentOptions& options;
  at::Tensor draws;  // float32 [B, kDraws]
  at::Tensor noise;  // like the images; defined if kNoise can be chosen
};

// Changes the samples that are `chosen`, bool [B].
at::Tensor transform(int64_t kind, const at::Tensor& images, const at::Tensor& chosen, const Sample& sample) {
  const AugmentOptions& options = sample.options;
  const at::Tensor uniform = sample.draws.select(1, kFactors + kind);
  const auto factor = [&](const JitterOptions& jitter, double neutral) { return at::where(chosen, between(uniform, jitter.range), neutral); };
  switch (kind) {
    case kBrightness: return adjust_brightness(images, factor(options.brightness, 1));
    case kContrast: return adjust_contrast(images, factor(options.contrast, 1));
    case kSaturation: return adjust_saturation(images, factor(options.saturation, 1));
    case kHue: {  // its way through HSV is not exact, so the others are put back
      std::vector<int64_t> shape(static_cast<size_t>(images.dim()), 1);
      shape[0] = chosen.size(0);
      return at::where(chosen.view(shape), adjust_hue(images, between(uniform, options.hue.range)), images);
    }
    case kSharpness: return adjust_sharpness(images, factor(options.sharpness, 1));
    case kAffine: {
      const auto shift = [&](int64_t column, double share, int64_t size) {
        const double most = share * static_cast<double>(size);
        return at::where(chosen, between(sample.draws.select(1, column), {-most, most}).round_(), 0.0);
      };
      return affine(images, at::where(chosen, between(uniform, options.affine.degrees), 0.0),
                    shift(kShiftX, options.affine.translate[0], images.size(-1)), shift(kShiftY, options.affine.translate[1], images.size(-2)));
    }
    default: return add_noise(images, sample.noise, factor(options.noise, 0) / 255);
  }
}

}  // namespace

Augmenter::Augmenter(const AugmentOptions& options, std::vector<std::string> cameras, uint64_t seed, at::Device device)
    : options_(options), cameras_(std::move(cameras)), seed_(seed) {
  options_.validate();
  std::vector<double> weights;
  for (int64_t kind = 0; kind < kKinds; ++kind) {
    if (weight_of(options_, kind) <= 0) continue;
    transforms_.push_back(kind);
    weights.push_back(weight_of(options_, kind));
  }
  weights_ = at::tensor(weights, at::kFloat).to(device);
  key_columns_ = (at::tensor(transforms_, at::kLong) + kKeys).to(device);
}

void Augmenter::apply(Batch& batch, int64_t step) const {
  if (!options_.enable) return;
  for (const std::string& camera : cameras_) {
    at::Tensor& images = batch.fields.at(camera);
    images = apply(images, batch.position, camera, step);
  }
}

at::Tensor Augmenter::apply(const at::Tensor& images, const at::Tensor& position, const std::string& camera, int64_t step) const {
  const at::NoGradGuard no_grad;
  const at::Tensor cropped = options_.random_crop.empty() ? images : random_crop(images, position, camera, step);
  return transforms_.empty() ? cropped : jitter(cropped, position, camera, step);
}

at::Tensor Augmenter::jitter(at::Tensor images, const at::Tensor& position, const std::string& camera, int64_t step) const {
  const StepRandom random(seed_, step, position);
  Sample sample{options_, random.uniform(random_stream("augment." + camera), {kDraws}, at::kFloat), {}};
  if (options_.noise.weight > 0) {
    sample.noise = random.normal(random_stream("augment.noise." + camera), images.sizes().slice(1), images.scalar_type());
  }
  // The smallest of exponential variables with rates `weights`: drawing without replacement, as torch.multinomial does.
  const at::Tensor keys = (-sample.draws.index_select(1, key_columns_)).log1p_().neg_() / weights_;
  const at::Tensor order = keys.argsort(/*stable=*/true, 1);  // [B, transforms]: which is first, second, ...
  const at::Tensor changed = sample.draws.select(1, kIsChanged) < options_.probability;
  const auto count = static_cast<int64_t>(transforms_.size());
  const int64_t applied = std::min(count, options_.max_num_transforms);
  if (options_.random_order) {
    for (int64_t slot = 0; slot < applied; ++slot) {
      for (int64_t i = 0; i < count; ++i) {
        images = transform(transforms_[static_cast<size_t>(i)], images, (order.select(1, slot) == i).logical_and_(changed), sample);
      }
    }
    return images;
  }
  const at::Tensor chosen = (order.argsort(/*stable=*/true, 1) < applied).logical_and_(changed.unsqueeze(1));
  for (int64_t i = 0; i < count; ++i) images = transform(transforms_[static_cast<size_t>(i)], images, chosen.select(1, i), sample);
  return images;
}

at::Tensor Augmenter::random_crop(const at::Tensor& images, const at::Tensor& position, const std::string& camera, int64_t step) const {
  const int64_t height = options_.random_crop[0], width = options_.random_crop[1];
  if (height > images.size(-2) || width > images.size(-1)) {
    throw cxxrun::UsageError("augment.random_crop = [{}, {}] is larger than the images of '{}', {}x{}", height, width, camera, images.size(-2),
                             images.size(-1));
  }
  const StepRandom random(seed_, step, options_.crop_per_sample ? position : at::zeros({1}, position.options()));
  const at::Tensor place = random.uniform(random_stream("augment.crop." + camera), {2}, at::kFloat);
  const at::Tensor window = crop_at(images, crop_offsets(place.select(1, 0), images.size(-2), height),
                                    crop_offsets(place.select(1, 1), images.size(-1), width), height, width);
  return resize_bilinear(window, images.size(-2), images.size(-1));
}

}  // namespace vla
