#include "worker/frozen_cache.hpp"

#include <algorithm>
#include <chrono>

#include <cuda_runtime_api.h>
#include <torch/torch.h>

#include "common/error.hpp"
#include "common/log.hpp"
#include "worker/checkpoint/fingerprint.hpp"
#include "worker/data/memory_budget.hpp"

namespace vla {
namespace {

using std::chrono::steady_clock;

constexpr double kGb = 1e9;
constexpr auto kReportEvery = std::chrono::seconds(10);
constexpr int64_t kReduceBytes = int64_t{1} << 30;

double free_device_memory() {
  size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<double>(free) : 0;
}

// Micro-batches of `samples` in order, the last one filled up.
data::Loader::Plan plan_of(std::vector<int64_t> samples, int64_t rows) {
  return [samples = std::move(samples), rows](int64_t k) -> std::optional<data::MicroBatch> {
    const auto begin = static_cast<size_t>(k * rows);
    if (begin >= samples.size()) return std::nullopt;
    data::MicroBatch batch;
    for (size_t i = begin; i < begin + static_cast<size_t>(rows); ++i) {
      const bool is_padding = i >= samples.size();
      batch.rows.push_back({.sample = is_padding ? samples[begin] : samples[i], .position = static_cast<int64_t>(i - begin), .is_padding = is_padding});
    }
    return batch;
  };
}

int64_t real_rows(const data::Slot& slot) { return std::ranges::count(slot.batch.rows, false, &data::SampleRef::is_padding); }

}  // namespace

std::optional<FrozenLevel> frozen_level(const std::string& name, bool augmented) {
  if (name == "off") return std::nullopt;
  if (augmented) {
    throw cxxrun::UsageError("training.frozen_cache = {} keeps what frozen parts make of an image, and augment.enable = true changes the images in every step: switch one of them off", name);
  }
  return name == "vision" ? FrozenLevel::kVision : FrozenLevel::kPrefix;
}

std::string frozen_fingerprint(const Policy& policy) {
  uint64_t sum = 1;
  std::string names;
  for (const auto& entry : policy.named_parameters()) {
    if (entry.value().requires_grad()) continue;
    const at::Tensor values = entry.value().detach().cpu().contiguous();
    sum = data::checksum(static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes(), sum);
    names += fmt::format("{} {} {}\n", entry.key(), c10::toString(values.scalar_type()), sum);
  }
  return fingerprint(names);
}

data::SampleRequest without_images(const data::SampleRequest& request, const PolicyFeatures& features) {
  data::SampleRequest rest;
  for (const data::FieldRequest& field : request) {
    const auto feature = std::ranges::find(features.inputs, field.key, &PolicyFeature::key);
    if (feature == features.inputs.end() || feature->type != data::FeatureType::kVisual) rest.push_back(field);
  }
  return rest;
}

FrozenCache::FrozenCache(const FrozenCacheOptions& options, std::shared_ptr<const data::Dataset> dataset, const data::SampleRequest& request,
                         const data::LoaderOptions& loader_options, const Features& features, const cxxrun::World& world)
    : level_(options.level) {
  const torch::NoGradGuard no_grad;
  data::LoaderOptions loading = loader_options;
  loading.skip_broken_rows = false;  // nobody would see later which features are of no picture
  frames_.samples = dataset->size();
  {
    data::Loader first(dataset, request, plan_of({0}, loading.rows), loading);
    const data::Slot* slot = first.next();
    choose_place(options, features(*slot, first.layout()), world);
  }
  // A table on every GPU and a file have each sample made once; memory of a process has them all made there.
  const int64_t parts = table_.defined() ? world.size() : options.folder.empty() ? 1 : world.local_size();
  const int64_t part = world.rank() % parts, samples = frames_.samples;
  std::vector<int64_t> missing;
  for (int64_t sample = samples * part / parts; sample < samples * (part + 1) / parts; ++sample) {
    if (!rows_ || !rows_->holds(0, sample)) missing.push_back(sample);
  }
  const auto total = static_cast<int64_t>(missing.size());
  cxxrun::log_info("Frozen features ({}): {} samples, {:.1f} GB {}, {} of them to be made by this rank", name_of(level_), samples, static_cast<double>(bytes()) / kGb,
                   table_.defined() ? "in the GPU's memory" : options.folder.empty() ? "in memory" : "in " + options.folder.string(), total);
  data::Loader loader(dataset, request, plan_of(std::move(missing), loading.rows), loading);
  const auto start = steady_clock::now();
  auto reported = start;
  int64_t done = 0;
  while (const data::Slot* slot = loader.next()) {
    keep(features(*slot, loader.layout()), *slot);
    done += real_rows(*slot);
    const auto now = steady_clock::now();
    if (now - reported < kReportEvery) continue;
    reported = now;
    const double seconds = std::chrono::duration<double>(now - start).count();
    cxxrun::log_info("Frozen features: {} of {} samples, {:.0f}/s, {:.0f} s to go", done, total, static_cast<double>(done) / seconds,
                     seconds * static_cast<double>(total - done) / static_cast<double>(done));
  }
  if (table_.defined() && world.size() > 1) {  // zeros elsewhere
    const int64_t step = std::max<int64_t>(1, kReduceBytes / static_cast<int64_t>(frames_.frame_bytes[0]));
    for (int64_t begin = 0; begin < samples; begin += step) world.all_reduce_sum(table_.slice(0, begin, std::min(begin + step, samples)));
  }
  world.barrier();
}

void FrozenCache::choose_place(const FrozenCacheOptions& options, const torch::Tensor& example, const cxxrun::World& world) {
  example_ = example.slice(0, 0, 1).contiguous();
  frames_.frame_bytes = {example_.nbytes()};
  const auto total = static_cast<double>(bytes());
  const bool on_gpu = example.is_cuda();
  at::Tensor fits = at::full({}, on_gpu && total <= (options.gb > 0 ? options.gb * kGb : free_device_memory() / 2) ? 1 : 0, example.options().dtype(at::kLong));
  world.all_reduce_sum(fits);
  if (fits.item<int64_t>() == world.size()) {
    std::vector<int64_t> shape = example_.sizes().vec();
    shape[0] = frames_.samples;
    table_ = at::zeros(shape, example.options());
  } else if (!options.folder.empty()) {
    const std::string name = fingerprint(fmt::format("{} {} {} {}", options.identity(), name_of(level_), c10::toString(example.scalar_type()), frames_.frame_bytes[0]));
    rows_ = data::disk_frame_cache(frames_, options.folder / ("frozen-" + name), std::stoull(name, nullptr, 16));
  } else {
    const auto room = static_cast<double>(data::memory_budget()) / static_cast<double>(world.local_size());
    if (total > room) {
      throw cxxrun::UsageError("training.frozen_cache = {} needs {:.1f} GB: the GPU has no room for it (training.frozen_cache_gb, by default half of what is free), "
                               "and this rank may take {:.1f} GB of the machine's memory: set data.cache_dir to a folder for a file, or take less with vision or off",
                               name_of(level_), total / kGb, room / kGb);
    }
    rows_ = data::memory_frame_cache(frames_, bytes());
  }
}

void FrozenCache::keep(const torch::Tensor& features, const data::Slot& slot) {
  const int64_t rows = real_rows(slot);
  const at::Tensor own = features.slice(0, 0, rows).contiguous();
  if (table_.defined()) {
    at::Tensor samples = at::empty({rows}, at::kLong);
    for (int64_t row = 0; row < rows; ++row) samples.data_ptr<int64_t>()[row] = slot.batch.rows[static_cast<size_t>(row)].sample;
    table_.index_copy_(0, samples.to(table_.device()), own);
    return;
  }
  const at::Tensor host = own.cpu();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t sample = slot.batch.rows[static_cast<size_t>(row)].sample;
    rows_->write(0, sample, static_cast<const std::byte*>(host.const_data_ptr()) + static_cast<size_t>(row) * frames_.frame_bytes[0]);
  }
}

void FrozenCache::add_to(Batch& batch, const data::Slot& slot) const {
  at::Tensor& features = batch.fields[frozen_key(level_)];
  if (table_.defined()) {
    features = table_.index_select(0, batch.sample);
    return;
  }
  std::vector<int64_t> shape = example_.sizes().vec();
  shape[0] = batch.rows();
  const at::Device device = example_.device();
  const at::Tensor host = at::empty(shape, at::TensorOptions(example_.scalar_type()).pinned_memory(device.is_cuda()));
  auto* out = static_cast<std::byte*>(host.mutable_data_ptr());
  for (const data::SampleRef& row : slot.batch.rows) {
    if (!rows_->read(0, row.sample, out)) {
      throw cxxrun::Error("the frozen features of sample {} are gone: is the disk full, or the file damaged? Start again, or set training.frozen_cache=off", row.sample);
    }
    out += frames_.frame_bytes[0];
  }
  features = device.is_cuda() ? host.to(device, /*non_blocking=*/true) : host;
}

}  // namespace vla
