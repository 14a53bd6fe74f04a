#include "worker/data/inspect/episode_check.hpp"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "common/error.hpp"
#include "worker/data/frame_reader.hpp"

namespace vla::data {
namespace {

// What re-encoding may change in a picture that stands still.
constexpr int kStillLevels = 2;

SampleRequest numeric_features(const Dataset& dataset) {
  SampleRequest request;
  for (const Feature& feature : dataset.features()) {
    if (feature.type != FeatureType::kVisual) request.push_back({feature.key, {}});
  }
  return request;
}

bool is_same_picture(std::span<const std::byte> a, std::span<const std::byte> b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::abs(std::to_integer<int>(a[i]) - std::to_integer<int>(b[i])) > kStillLevels) return false;
  }
  return true;
}

void add_picture(std::span<const std::byte> rgb, std::vector<Moments>& channels) {
  std::array<uint64_t, 3> sums = {};
  for (size_t i = 0; i < rgb.size(); i += 3) {
    for (size_t channel = 0; channel < 3; ++channel) sums[channel] += std::to_integer<uint64_t>(rgb[i + channel]);
  }
  for (size_t channel = 0; channel < 3; ++channel)
    channels[channel].add(static_cast<double>(sums[channel]) * 3 / 255 / static_cast<double>(rgb.size()));
}

// A kind of mistake in the rows of an episode: how often, and where first.
struct Mistakes {
  int64_t count = 0, first_frame = 0;
  std::string first;

  template <class Describe>
  void add(int64_t frame, Describe describe) {
    if (count++ > 0) return;
    first_frame = frame;
    first = describe();
  }
  std::string text() const { return count == 1 ? first : fmt::format("{}, the first of {}", first, count); }
};

}  // namespace

EpisodeChecker::EpisodeChecker(const Dataset& dataset, const EpisodeFiles& files, Options options)
    : dataset_(dataset), files_(files), options_(options), numbers_(open(numeric_features(dataset))) {
  for (const Feature& feature : dataset.features()) {
    const bool is_read = feature.type == FeatureType::kVisual && options.decode;
    cameras_.push_back(is_read ? open({{feature.key, {}}}) : Reader{SampleBuffer({}), nullptr});
  }
}

// make_layout() instead of Dataset::layout(), which refuses values that are to be reported here.
EpisodeChecker::Reader EpisodeChecker::open(const SampleRequest& request) const {
  return {SampleBuffer(make_layout(dataset_.features(), request)), dataset_.open_reader(request)};
}

EpisodeSummary EpisodeChecker::check(const Episode& episode) {
  EpisodeSummary out;
  for (const Feature& feature : dataset_.features())
    out.moments.emplace_back(feature.type == FeatureType::kVisual ? 3 : element_count(feature.shape));
  if (episode.end - episode.begin < 2) {
    out.findings.push_back({Severity::kWarning,
                            "short_episode",
                            {.episode = episode.index},
                            "the episode has one frame only",
                            "leave it out (dataset.episodes), a motion cannot be learnt from it"});
  }
  check_numbers(episode, out);
  for (size_t i = 0; i < cameras_.size(); ++i) {
    if (cameras_[i].reader) check_camera(episode, i, out);
  }
  return out;
}

void EpisodeChecker::check_numbers(const Episode& episode, EpisodeSummary& out) {
  const std::vector<Feature>& features = dataset_.features();
  std::vector<Mistakes> not_finite(features.size());
  Mistakes bad_time, bad_task;
  for (int64_t sample = episode.begin; sample < episode.end; ++sample) {
    const int64_t frame = sample - episode.begin;
    try {
      numbers_.buffer.read(*numbers_.reader, sample);
    } catch (const cxxrun::DataError& error) {
      const Place place{files_.named_in(error.what(), episode.index), episode.index, frame, ""};
      out.findings.push_back(finding_of(error.what(), "unreadable_row", place, "copy the file again"));
      break;
    }
    for (size_t i = 0; i < features.size(); ++i) {
      if (features[i].type == FeatureType::kVisual) continue;
      const std::vector<double> values = numbers_.buffer.numbers(features[i].key);
      for (size_t at = 0; at < values.size(); ++at) {
        if (std::isfinite(values[at])) {
          out.moments[i][at].add(values[at]);
        } else {
          not_finite[i].add(frame, [&] { return fmt::format("[{}] is {}", at, values[at]); });
        }
      }
      if (features[i].key != "timestamp" || values.size() != 1) continue;
      const double expected = static_cast<double>(frame) / dataset_.fps();
      if (std::abs(values[0] - expected) > options_.tolerance_s + expected * std::numeric_limits<float>::epsilon()) {
        bad_time.add(frame, [&] {
          return fmt::format("the timestamp is {:.6g} s, at {} frames/s it should be {:.6g} s", values[0],
                             dataset_.fps(), expected);
        });
      }
    }
    const int64_t task = numbers_.buffer.number("task_index"), tasks = static_cast<int64_t>(dataset_.tasks().size());
    if (task < 0 || task >= tasks)
      bad_task.add(frame, [&] { return fmt::format("task {} is not one of the {} tasks", task, tasks); });
  }

  const auto report = [&](const Mistakes& mistakes, Severity severity, const char* kind, size_t feature,
                          std::string key, const char* remedy) {
    if (mistakes.count == 0) return;
    out.findings.push_back({severity,
                            kind,
                            {files_.of(episode.index, feature), episode.index, mistakes.first_frame, std::move(key)},
                            mistakes.text(),
                            remedy});
  };
  for (size_t i = 0; i < features.size(); ++i) {
    // A training reads the others only if it is asked to.
    const Severity severity = features[i].type == FeatureType::kOther ? Severity::kWarning : Severity::kError;
    report(not_finite[i], severity, "not_finite", i, features[i].key,
           "repair the row, or leave the episode out (dataset.episodes)");
    if (features[i].key == "timestamp")
      report(bad_time, Severity::kError, "timestamp", i, features[i].key,
             "set fps in the dataset's description to the real rate, or convert the dataset again");
  }
  report(bad_task, Severity::kError, "task_index", 0, "", "add the task's text to the dataset's list of tasks");
}

void EpisodeChecker::check_camera(const Episode& episode, size_t feature, EpisodeSummary& out) {
  const std::string& key = dataset_.features()[feature].key;
  const std::string file = files_.of(episode.index, feature);
  auto& [buffer, reader] = cameras_[feature];
  Mistakes unreadable;
  std::vector<std::byte> first;
  int64_t same = 0;
  for (int64_t sample = episode.begin; sample < episode.end; ++sample) {
    const int64_t frame = sample - episode.begin;
    try {
      buffer.read(*reader, sample);
    } catch (const cxxrun::DataError& error) {
      unreadable.add(frame, [&] { return std::string(error.what()); });
      continue;
    }
    const std::span<const std::byte> rgb = buffer.bytes(key);
    add_picture(rgb, out.moments[feature]);
    if (first.empty()) first.assign(rgb.begin(), rgb.end());
    if (same == frame && is_same_picture(first, rgb)) ++same;
  }
  const int64_t length = episode.end - episode.begin;
  if (unreadable.count > 0) {
    Finding finding =
        finding_of(unreadable.first, "unreadable_frame", {file, episode.index, unreadable.first_frame, key},
                   "copy or encode the file again, or leave the episode out (dataset.episodes)");
    finding.message += unreadable.count == 1
                           ? ""
                           : fmt::format(" ({} of the episode's {} frames cannot be read)", unreadable.count, length);
    out.findings.push_back(std::move(finding));
  } else if (same == length && length > 1) {
    out.findings.push_back({Severity::kWarning,
                            "frozen_camera",
                            {file, episode.index, 0, key},
                            fmt::format("all {} pictures of the episode are the same", length),
                            "look at it (vla_worker data view); leave the episode out if the camera had stopped"});
  }
}

}  // namespace vla::data
