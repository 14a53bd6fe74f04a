#include "worker/data/inspect/sample_json.hpp"

#include <algorithm>

#include "common/error.hpp"

namespace vla::data {
namespace {

using Json = nlohmann::ordered_json;

bool is_shown(const Feature& feature) { return feature.type != FeatureType::kOther; }

SampleRequest make_request(const Dataset& dataset, int64_t chunk) {
  SampleRequest request;
  for (const Feature& feature : dataset.features()) {
    if (!is_shown(feature) && feature.key != "timestamp") continue;
    FieldRequest& field = request.emplace_back(FieldRequest{feature.key, {}});
    for (int64_t i = 0; feature.type == FeatureType::kAction && i < chunk; ++i) field.deltas.push_back(i);
  }
  return request;
}

// Row-major values as nested lists.
Json nested(std::span<const double> values, std::span<const int64_t> shape) {
  if (shape.empty()) return values.front();
  Json list = Json::array();
  const size_t step = values.size() / static_cast<size_t>(shape.front());
  for (size_t at = 0; at < values.size(); at += step)
    list.push_back(nested(values.subspan(at, step), shape.subspan(1)));
  return list;
}

Json flags(std::span<const double> values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(value != 0);
  return list;
}

}  // namespace

SamplePrinter::SamplePrinter(std::shared_ptr<const Dataset> dataset, int64_t chunk, std::vector<Pixel> pixels)
    : dataset_(std::move(dataset)),
      pixels_(std::move(pixels)),
      buffer_(dataset_->layout(make_request(*dataset_, chunk))),
      reader_(dataset_->open_reader(make_request(*dataset_, chunk))) {
  for (const Feature& feature : dataset_->features()) {
    if (is_shown(feature)) shown_.push_back(&feature);
    has_timestamp_ = has_timestamp_ || feature.key == "timestamp";
    if (feature.type != FeatureType::kVisual) continue;
    for (const auto& [y, x] : pixels_) {
      if (y < 0 || y >= feature.shape[0] || x < 0 || x >= feature.shape[1]) {
        throw cxxrun::UsageError("--pixels: {},{} is outside '{}' of {}x{} (height x width)", y, x, feature.key,
                                 feature.shape[0], feature.shape[1]);
      }
    }
  }
}

int64_t SamplePrinter::find_sample(int64_t episode, int64_t frame) const {
  const std::vector<Episode>& episodes = dataset_->episodes();
  const auto found = std::ranges::find(episodes, episode, &Episode::index);
  if (found == episodes.end()) {
    throw cxxrun::UsageError("--episode: there is no episode {}, the dataset has {} to {}", episode,
                             episodes.front().index, episodes.back().index);
  }
  const int64_t length = found->end - found->begin;
  if (frame < 0 || frame >= length)
    throw cxxrun::UsageError("--frame: there is no frame {}, episode {} has frames 0 to {}", frame, episode,
                             length - 1);
  return found->begin + frame;
}

Json SamplePrinter::picture(const std::string& key) const {
  const std::vector<int64_t>& shape = buffer_.field(key).shape;
  const std::span<const std::byte> rgb = buffer_.bytes(key);
  Json values = Json::array();
  for (const auto& [y, x] : pixels_) {
    const auto at = static_cast<size_t>((y * shape[1] + x) * 3);
    values.push_back(
        {std::to_integer<int>(rgb[at]), std::to_integer<int>(rgb[at + 1]), std::to_integer<int>(rgb[at + 2])});
  }
  return {{"height", shape[0]}, {"width", shape[1]}, {"rgb", std::move(values)}};
}

Json SamplePrinter::read(int64_t episode, int64_t frame) {
  buffer_.read(*reader_, find_sample(episode, frame));
  const double timestamp =
      has_timestamp_ ? buffer_.numbers("timestamp").front() : static_cast<double>(frame) / dataset_->fps();
  const auto task = static_cast<size_t>(buffer_.number("task_index"));  // some formats have no texts
  Json result = {{"episode", episode},
                 {"frame", frame},
                 {"index", buffer_.number("index")},
                 {"timestamp", timestamp},
                 {"task", task < dataset_->tasks().size() ? dataset_->tasks()[task] : ""}};
  Json images = Json::object();
  for (const Feature* feature : shown_) {
    const std::string& key = feature->key;
    if (feature->type == FeatureType::kVisual) {
      images[key] = picture(key);
      continue;
    }
    result[key] = nested(buffer_.numbers(key), buffer_.field(key).shape);
    if (feature->type == FeatureType::kAction) result[key + "_is_pad"] = flags(buffer_.numbers(key + "_is_pad"));
  }
  result["images"] = std::move(images);
  return result;
}

}  // namespace vla::data
