#include "worker/data/zarr/zarr_dataset.hpp"

#include <algorithm>
#include <filesystem>

#include "common/error.hpp"
#include "common/log.hpp"
#include "worker/data/frame_reader.hpp"
#include "worker/data/zarr/row_source.hpp"
#include "worker/data/zarr/statistics.hpp"
#include "worker/data/zarr/table.hpp"

namespace vla::data {
namespace {

constexpr double kDefaultFps = 10;

class ZarrDataset : public Dataset {
 public:
  explicit ZarrDataset(const DatasetSpec& spec) : table_(spec.root, spec.skip_broken), tasks_{table_.buffer.task} {
    select_episodes(spec);
    stats_ = compute_stats(table_);
    if (table_.buffer.fps == 0)
      cxxrun::log_info("{}: no fps in .zattrs, {} frames a second are assumed", description(), kDefaultFps);
  }

  std::string description() const override { return "zarr, " + table_.buffer.root; }
  int64_t size() const override { return episodes_.back().end; }
  double fps() const override { return table_.buffer.fps > 0 ? table_.buffer.fps : kDefaultFps; }
  const std::vector<Feature>& features() const override { return table_.features; }
  const DatasetStats& stats() const override { return stats_; }
  const std::vector<Episode>& episodes() const override { return episodes_; }
  const std::vector<std::string>& tasks() const override { return tasks_; }
  int64_t broken_episodes() const override { return broken_episodes_; }
  SampleLayout layout(const SampleRequest& request) const override;
  std::unique_ptr<SampleReader> open_reader(const SampleRequest& request) const override;

  const ZarrTable& table() const { return table_; }

 private:
  void select_episodes(const DatasetSpec& spec);

  const ZarrTable table_;
  std::vector<Episode> episodes_;
  const std::vector<std::string> tasks_;
  DatasetStats stats_;
  int64_t broken_episodes_ = 0;
};

void ZarrDataset::select_episodes(const DatasetSpec& spec) {
  int64_t begin = 0;
  for (const int64_t number : selected_episodes(spec.episodes, static_cast<int64_t>(table_.buffer.ends.size()))) {
    const int64_t first = table_.first_row(number), last = table_.buffer.ends[static_cast<size_t>(number)];
    if (first == last) continue;  // allowed by the format; nothing to train on
    if (const auto* bad = table_.broken_between(first, last)) {
      ++broken_episodes_;
      cxxrun::log_warning("{}: episode {} is left out: {}", description(), number, bad->reason);
      continue;
    }
    episodes_.push_back({number, begin, begin + last - first});
    begin = episodes_.back().end;
  }
  if (episodes_.empty()) {
    if (table_.broken.empty()) throw cxxrun::DataError("{}: the selected episodes have no frames", table_.buffer.root);
    throw cxxrun::DataError("{}: all selected episodes are broken, the first: {}", table_.buffer.root,
                            table_.broken[0].reason);
  }
}

SampleLayout ZarrDataset::layout(const SampleRequest& request) const {
  for (const FieldRequest& wanted : request) {
    const auto reason = table_.unsupported.find(wanted.key);
    if (reason != table_.unsupported.end())
      throw cxxrun::UsageError("feature '{}' cannot be used: {}", wanted.key, reason->second);
  }
  SampleLayout result = make_layout(table_.features, request);
  for (size_t feature = 0; feature < table_.features.size(); ++feature) {
    const std::string& key = table_.features[feature].key;
    if (std::none_of(request.begin(), request.end(), [&](const FieldRequest& wanted) { return wanted.key == key; }))
      continue;
    for (const Episode& episode : episodes_) {
      for (int64_t frame = 0; frame < episode.end - episode.begin; ++frame) {
        const int64_t row = table_.first_row(episode.index) + frame, bad = table_.first_bad_value(feature, row);
        if (bad < 0) continue;
        throw cxxrun::DataError(
            "{}/{}: episode {} frame {} (row {}): value {} is not a finite number; repair it, or leave the episode out "
            "(dataset.episodes)",
            table_.buffer.root, table_.columns[feature].array->name(), episode.index, frame, row, bad);
      }
    }
  }
  return result;
}

class ZarrReader : public FrameReader {
 public:
  ZarrReader(const ZarrDataset& dataset, const SampleRequest& request)
      : FrameReader(dataset, request), dataset_(dataset), rows_(dataset.table()) {}

 private:
  void read_frame(size_t feature, int64_t sample, std::byte* out) override {
    rows_.read(feature, keys(sample)[0], out);
  }
  std::array<int64_t, 4> keys(int64_t sample) override {
    const Episode& episode = episode_of(dataset_.episodes(), sample);
    const int64_t frame = sample - episode.begin;
    return {dataset_.table().first_row(episode.index) + frame, episode.index, frame, 0};
  }

  const ZarrDataset& dataset_;
  RowSource rows_;
};

std::unique_ptr<SampleReader> ZarrDataset::open_reader(const SampleRequest& request) const {
  return std::make_unique<ZarrReader>(*this, request);
}

}  // namespace

bool is_zarr(const std::string& root) { return std::filesystem::exists(root + "/.zgroup"); }

std::shared_ptr<const Dataset> open_zarr(const DatasetSpec& spec) { return std::make_shared<ZarrDataset>(spec); }

}  // namespace vla::data
