#include "worker/data/synthetic.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "common/error.hpp"
#include "worker/data/frame_reader.hpp"

namespace vla::data {
namespace {

constexpr std::string_view kPrefix = "synthetic:";
constexpr double kFps = 10;

struct Sizes {
  int64_t frames = 64, state = 4, action = 4, episodes = 4, task_count = 1, height = 0, width = 0, cameras = 1;
};

Sizes parse_sizes(const std::string& root) {
  Sizes sizes;
  const std::vector<std::pair<std::string_view, int64_t*>> keys = {
      {"frames", &sizes.frames},     {"state", &sizes.state},           {"action", &sizes.action},
      {"episodes", &sizes.episodes}, {"task_count", &sizes.task_count}, {"image", &sizes.height},
      {"cameras", &sizes.cameras}};
  const auto parse = [&](std::string_view text, int64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > 100'000'000) {
      throw cxxrun::UsageError("dataset.root '{}': '{}' is not a positive number", root, text);
    }
  };
  std::string_view rest = std::string_view(root).substr(kPrefix.size());
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const size_t equals = std::min(item.find('='), item.size());
    const std::string_view name = item.substr(0, equals);
    std::string_view value = item.substr(std::min(item.size(), equals + 1));
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const auto& k) { return k.first == name; });
    if (key == keys.end()) {
      throw cxxrun::UsageError(
          "dataset.root '{}': unknown part '{}' (known: frames, state, action, image=HxW, cameras, episodes, task_count)", root,
          name);
    }
    if (name == "image") {
      const size_t cross = std::min(value.find('x'), value.size());
      parse(value.substr(std::min(value.size(), cross + 1)), sizes.width);
      value = value.substr(0, cross);
    }
    parse(value, *key->second);
  }
  if (sizes.episodes > sizes.frames) throw cxxrun::UsageError("dataset.root '{}': more episodes than frames", root);
  return sizes;
}

float state_value(int64_t frame, int64_t i) {
  return static_cast<float>(std::sin(0.37 * static_cast<double>(frame) * (1 + 0.61 * i) + 1.7 * i));
}

// A[i, j] of action = A * state + b.
double weight(int64_t i, int64_t j) { return 0.5 * std::cos(1.3 * i + 2.1 * j); }

float action_value(const Sizes& sizes, int64_t frame, int64_t i) {
  double sum = 0.1 * i;
  for (int64_t j = 0; j < sizes.state; ++j) sum += weight(i, j) * state_value(frame, j);
  return static_cast<float>(sum);
}

class SyntheticDataset : public Dataset {
 public:
  explicit SyntheticDataset(const DatasetSpec& spec) : root_(spec.root), sizes_(parse_sizes(spec.root)) {
    for (int64_t i = 0; sizes_.height > 0 && i < sizes_.cameras; ++i) {
      const std::string key = sizes_.cameras == 1 ? "observation.image" : fmt::format("observation.images.camera{}", i);
      features_.push_back({key, FeatureType::kVisual, DType::kUInt8, {sizes_.height, sizes_.width, 3}});
      for (const auto& [stat, value] : {std::pair("mean", 0.5), {"std", 0.25}, {"min", 0.0}, {"max", 1.0}}) {
        stats_[key][stat] = {{3, 1, 1}, {value, value, value}};
      }
    }
    features_.push_back({"observation.state", FeatureType::kState, DType::kFloat32, {sizes_.state}});
    features_.push_back({"action", FeatureType::kAction, DType::kFloat32, {sizes_.action}});
    for (int64_t i = 0; i < sizes_.task_count; ++i) tasks_.push_back(fmt::format("synthetic task {}", i));
    for (const int64_t e : selected_episodes(spec.episodes, sizes_.episodes)) {
      const int64_t length = first_frame(e + 1) - first_frame(e);
      episodes_.push_back({e, size_, size_ + length});
      size_ += length;
    }
    add_stats("observation.state", sizes_.state, [&](int64_t frame, int64_t i) { return state_value(frame, i); });
    add_stats("action", sizes_.action, [&](int64_t frame, int64_t i) { return action_value(sizes_, frame, i); });
  }

  std::string description() const override { return "synthetic, " + root_; }
  int64_t size() const override { return size_; }
  double fps() const override { return kFps; }
  const std::vector<Feature>& features() const override { return features_; }
  const DatasetStats& stats() const override { return stats_; }
  const std::vector<Episode>& episodes() const override { return episodes_; }
  const std::vector<std::string>& tasks() const override { return tasks_; }
  SampleLayout layout(const SampleRequest& request) const override { return make_layout(features_, request); }
  std::unique_ptr<SampleReader> open_reader(const SampleRequest& request) const override;

  const Sizes& sizes() const { return sizes_; }
  int64_t first_frame(int64_t episode) const { return episode * sizes_.frames / sizes_.episodes; }

 private:
  template <class Value>
  void add_stats(const std::string& key, int64_t size, Value value) {
    auto& stats = stats_[key];
    const auto count = static_cast<double>(sizes_.frames);
    for (const char* name : {"mean", "std", "min", "max", "count"})
      stats[name].shape = {std::string_view(name) == "count" ? 1 : size};
    stats["count"].values = {count};
    for (int64_t i = 0; i < size; ++i) {
      double sum = 0, squares = 0, low = value(0, i), high = low;
      for (int64_t frame = 0; frame < sizes_.frames; ++frame) {
        const double x = value(frame, i);
        sum += x;
        squares += x * x;
        low = std::min(low, x);
        high = std::max(high, x);
      }
      stats["mean"].values.push_back(sum / count);
      stats["std"].values.push_back(std::sqrt(std::max(0.0, squares / count - sum / count * sum / count)));
      stats["min"].values.push_back(low);
      stats["max"].values.push_back(high);
    }
  }

  std::string root_;
  Sizes sizes_;
  int64_t size_ = 0;
  std::vector<Feature> features_;
  DatasetStats stats_;
  std::vector<Episode> episodes_;
  std::vector<std::string> tasks_;
};

class SyntheticReader : public FrameReader {
 public:
  SyntheticReader(const SyntheticDataset& dataset, const SampleRequest& request)
      : FrameReader(dataset, request), dataset_(dataset) {}

 private:
  void read_frame(size_t feature, int64_t sample, std::byte* out) override {
    const auto [frame, episode, frame_in_episode, task] = keys(sample);
    const Sizes& sizes = dataset_.sizes();
    const Feature& described = dataset_.features()[feature];
    if (described.type == FeatureType::kVisual) {
      // Channel c is a gradient whose brightness follows state c.
      const double brightness[] = {state_value(frame, 0), state_value(frame, 1 % sizes.state), state_value(frame, 2 % sizes.state)};
      for (int64_t y = 0, i = 0; y < sizes.height; ++y) {
        for (int64_t x = 0; x < sizes.width; ++x) {
          for (int64_t c = 0; c < 3; ++c, ++i) {
            const double place = c == 0   ? static_cast<double>(x) / sizes.width
                                 : c == 1 ? static_cast<double>(y) / sizes.height
                                          : 0.5;
            out[i] = static_cast<std::byte>(
                std::lround(127.5 + 127.5 * brightness[c] * (0.5 + 0.5 * place)));
          }
        }
      }
      return;
    }
    for (int64_t i = 0; i < described.shape[0]; ++i) {
      const float value = described.type == FeatureType::kState ? state_value(frame, i) : action_value(sizes, frame, i);
      std::memcpy(out + i * sizeof value, &value, sizeof value);
    }
  }

  std::array<int64_t, 4> keys(int64_t sample) override {
    const Episode& episode = episode_of(dataset_.episodes(), sample);
    const int64_t frame = sample - episode.begin;
    return {dataset_.first_frame(episode.index) + frame, episode.index, frame,
            episode.index % dataset_.sizes().task_count};
  }

  const SyntheticDataset& dataset_;
};

std::unique_ptr<SampleReader> SyntheticDataset::open_reader(const SampleRequest& request) const {
  return std::make_unique<SyntheticReader>(*this, request);
}

}  // namespace

bool is_synthetic(const std::string& root) { return root.starts_with(kPrefix); }

std::shared_ptr<const Dataset> open_synthetic(const DatasetSpec& spec) {
  return std::make_shared<SyntheticDataset>(spec);
}

}  // namespace vla::data
