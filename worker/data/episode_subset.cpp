#include "worker/data/episode_subset.hpp"

#include <algorithm>

#include "common/error.hpp"
#include "common/log.hpp"
#include "worker/data/frame_reader.hpp"

namespace vla::data {
namespace {

class EpisodeSubset : public Dataset {
 public:
  EpisodeSubset(std::shared_ptr<const Dataset> dataset, const std::vector<int64_t>& positions, int64_t dropped = 0)
      : dataset_(std::move(dataset)) {
    int64_t begin = 0;
    for (const int64_t position : positions) {
      const Episode& whole = dataset_->episodes().at(static_cast<size_t>(position));
      episodes_.push_back({whole.index, begin, begin + whole.end - whole.begin - dropped});
      shifts_.push_back(whole.begin - begin);
      begin = episodes_.back().end;
    }
  }

  std::string description() const override { return dataset_->description(); }
  int64_t size() const override { return episodes_.back().end; }
  double fps() const override { return dataset_->fps(); }
  const std::vector<Feature>& features() const override { return dataset_->features(); }
  const DatasetStats& stats() const override { return dataset_->stats(); }
  const std::vector<Episode>& episodes() const override { return episodes_; }
  const std::vector<std::string>& tasks() const override { return dataset_->tasks(); }
  int64_t broken_episodes() const override { return dataset_->broken_episodes(); }
  SampleLayout layout(const SampleRequest& request) const override { return dataset_->layout(request); }
  std::unique_ptr<SampleReader> open_reader(const SampleRequest& request) const override;

  int64_t whole_sample(int64_t sample) const {
    if (sample < 0 || sample >= size())
      throw cxxrun::Error("sample {} is outside the dataset of {} samples", sample, size());
    return sample + shifts_[static_cast<size_t>(&episode_of(episodes_, sample) - episodes_.data())];
  }

 private:
  const std::shared_ptr<const Dataset> dataset_;
  std::vector<Episode> episodes_;
  std::vector<int64_t> shifts_;  // of each episode: sample number in the whole minus ours
};

class SubsetReader : public SampleReader {
 public:
  SubsetReader(const EpisodeSubset& subset, std::unique_ptr<SampleReader> reader)
      : subset_(subset), reader_(std::move(reader)) {}
  void read(int64_t index, std::span<std::byte* const> destination) override {
    reader_->read(subset_.whole_sample(index), destination);
  }
  std::pair<int64_t, int64_t> decoding_group(int64_t index) override {
    const int64_t whole = subset_.whole_sample(index);
    const auto [begin, end] = reader_->decoding_group(whole);
    const int64_t last = episode_of(subset_.episodes(), index).end;
    return {begin - whole + index, std::min(end - whole + index, last)};
  }

 private:
  const EpisodeSubset& subset_;
  std::unique_ptr<SampleReader> reader_;
};

std::unique_ptr<SampleReader> EpisodeSubset::open_reader(const SampleRequest& request) const {
  return std::make_unique<SubsetReader>(*this, dataset_->open_reader(request));
}

}  // namespace

std::shared_ptr<const Dataset> episode_subset(std::shared_ptr<const Dataset> dataset,
                                              const std::vector<int64_t>& positions) {
  if (positions.empty()) throw cxxrun::UsageError("no episodes of {} are left", dataset->description());
  return std::make_shared<EpisodeSubset>(std::move(dataset), positions);
}

std::shared_ptr<const Dataset> drop_last_frames(std::shared_ptr<const Dataset> dataset, int64_t count) {
  if (count == 0) return dataset;
  std::vector<int64_t> positions;
  for (size_t i = 0; i < dataset->episodes().size(); ++i) {
    const Episode& episode = dataset->episodes()[i];
    if (episode.end - episode.begin > count) {
      positions.push_back(static_cast<int64_t>(i));
    } else {
      cxxrun::log_warning("episode {} is left out: policy.drop_n_last_frames = {} leaves nothing of its {} frames", episode.index, count,
                          episode.end - episode.begin);
    }
  }
  if (positions.empty()) {
    throw cxxrun::UsageError("policy.drop_n_last_frames = {} leaves nothing of {}: no episode is longer", count, dataset->description());
  }
  return std::make_shared<EpisodeSubset>(std::move(dataset), positions, count);
}

}  // namespace vla::data
