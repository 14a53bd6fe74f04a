#include "worker/data/cached_dataset.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "common/error.hpp"
#include "common/log.hpp"
#include "common/worker_env.hpp"
#include "worker/data/frame_cache.hpp"
#include "worker/data/frame_reader.hpp"
#include "worker/data/memory_budget.hpp"

namespace vla::data {
namespace {

namespace fs = std::filesystem;

struct CachedFrames {
  std::vector<std::string> cameras;
  std::unique_ptr<FrameCache> cache;

  std::optional<size_t> camera(const std::string& key) const {
    const auto found = std::find(cameras.begin(), cameras.end(), key);
    if (found == cameras.end()) return std::nullopt;
    return static_cast<size_t>(found - cameras.begin());
  }
};

// Bytes for the fields of a layout that are read along and not wanted.
std::vector<std::byte*> add_scratch(const SampleLayout& layout, std::vector<std::vector<std::byte>>& memory) {
  std::vector<std::byte*> destination;
  for (const Field& field : layout.fields) destination.push_back(memory.emplace_back(field.bytes_per_row).data());
  return destination;
}

// Reads single frames of one camera, through the cache.
class CameraReader {
 public:
  CameraReader(const Dataset& dataset, const std::string& key, size_t camera, FrameCache& cache)
      : dataset_(dataset), key_(key), camera_(camera), cache_(cache) {}

  void read(int64_t sample, std::byte* out) {
    if (cache_.read(camera_, sample, out)) return;
    if (!reader_) {
      reader_ = dataset_.open_reader({{key_, {}}});
      scratch_ = add_scratch(dataset_.layout({{key_, {}}}), memory_);
    }
    const auto [begin, end] = cache_.is_full() ? std::pair(sample, sample + 1) : reader_->decoding_group(sample);
    keep(begin, sample);
    decode(sample, out);
    keep(sample + 1, end);
  }

 private:
  void decode(int64_t sample, std::byte* out) {
    std::vector<std::byte*> destination = scratch_;
    destination[0] = out;
    reader_->read(sample, destination);
    cache_.write(camera_, sample, out);
  }

  // The other frames that come from the same key frame, which would have to be decoded again for each of them.
  void keep(int64_t begin, int64_t end) try {
    for (int64_t sample = begin; sample < end; ++sample) {
      if (!cache_.holds(camera_, sample)) decode(sample, scratch_[0]);
    }
  } catch (const cxxrun::DataError&) {
    // It will be thrown to whoever asks for that frame.
  }

  const Dataset& dataset_;
  const std::string key_;
  const size_t camera_;
  FrameCache& cache_;
  std::unique_ptr<SampleReader> reader_;  // opened when a frame is missing
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> scratch_;
};

class CachedReader : public SampleReader {
 public:
  CachedReader(const Dataset& dataset, const CachedFrames& frames, const SampleRequest& request) : dataset_(dataset) {
    const SampleLayout layout = dataset.layout(request);
    const auto index_of = [&](const std::string& key) {
      const auto field = std::find_if(layout.fields.begin(), layout.fields.end(), [&](const Field& f) { return f.key == key; });
      return static_cast<size_t>(field - layout.fields.begin());
    };
    SampleRequest others;
    for (const FieldRequest& wanted : request) {
      const std::optional<size_t> camera = frames.camera(wanted.key);
      if (!camera) {
        others.push_back(wanted);
        continue;
      }
      const size_t field = index_of(wanted.key);
      const size_t steps = std::max<size_t>(1, wanted.deltas.size());
      windows_.push_back({field, layout.fields[field].bytes_per_row / steps, wanted.deltas,
                          CameraReader(dataset, wanted.key, *camera, *frames.cache)});
    }
    for (const Field& field : dataset.layout(others).fields) other_fields_.push_back(index_of(field.key));
    others_ = dataset.open_reader(others);
  }

  void read(int64_t index, std::span<std::byte* const> destination) override {
    std::vector<std::byte*> of_others;
    for (const size_t field : other_fields_) of_others.push_back(destination[field]);
    others_->read(index, of_others);
    const Episode& episode = episode_of(dataset_.episodes(), index);
    for (Window& window : windows_) {
      std::byte* out = destination[window.field];
      if (window.deltas.empty()) window.camera.read(index, out);
      for (size_t t = 0; t < window.deltas.size(); ++t) {
        const int64_t wanted = index + window.deltas[t];
        const int64_t sample = std::clamp(wanted, episode.begin, episode.end - 1);
        window.camera.read(sample, out + t * window.bytes);
        destination[window.field + 1][t] = std::byte{sample != wanted};
      }
    }
  }

 private:
  struct Window {
    size_t field;  // its mask is the next one
    size_t bytes;  // of a frame
    std::vector<int64_t> deltas;
    CameraReader camera;
  };
  const Dataset& dataset_;
  std::vector<Window> windows_;
  std::vector<size_t> other_fields_;
  std::unique_ptr<SampleReader> others_;
};

class CachedDataset : public Dataset {
 public:
  CachedDataset(std::shared_ptr<const Dataset> dataset, CachedFrames frames)
      : dataset_(std::move(dataset)), frames_(std::move(frames)) {}

  std::string description() const override { return dataset_->description(); }
  int64_t size() const override { return dataset_->size(); }
  double fps() const override { return dataset_->fps(); }
  const std::vector<Feature>& features() const override { return dataset_->features(); }
  const DatasetStats& stats() const override { return dataset_->stats(); }
  const std::vector<Episode>& episodes() const override { return dataset_->episodes(); }
  const std::vector<std::string>& tasks() const override { return dataset_->tasks(); }
  int64_t broken_episodes() const override { return dataset_->broken_episodes(); }
  SampleLayout layout(const SampleRequest& request) const override { return dataset_->layout(request); }
  std::unique_ptr<SampleReader> open_reader(const SampleRequest& request) const override {
    return std::make_unique<CachedReader>(*dataset_, frames_, request);
  }

 private:
  const std::shared_ptr<const Dataset> dataset_;
  const CachedFrames frames_;
};

// Of everything that decides what a frame is: names, sizes and times of the dataset's files, the selected episodes, the cameras.
uint64_t fingerprint_of(const Dataset& dataset, const std::vector<std::string>& cameras, const FrameSet& frames,
                        const std::vector<std::string>& roots) {
  std::vector<std::string> parts;
  const auto add_file = [&](const fs::path& path) {
    std::error_code ignored;
    parts.push_back(fmt::format("{} {} {}", path.string(), fs::file_size(path, ignored),
                                fs::last_write_time(path, ignored).time_since_epoch().count()));
  };
  constexpr int kDeepest = 16;  // links may make circles
  for (const std::string& root : roots) {
    std::error_code failed;
    const fs::path folder = fs::weakly_canonical(root, failed);
    add_file(folder);
    const auto options = fs::directory_options::follow_directory_symlink | fs::directory_options::skip_permission_denied;
    for (fs::recursive_directory_iterator entry(folder, options, failed), end; !failed && entry != end; entry.increment(failed)) {
      if (entry.depth() >= kDeepest) entry.disable_recursion_pending();
      std::error_code ignored;
      if (entry->is_regular_file(ignored)) add_file(entry->path());
    }
  }
  std::sort(parts.begin(), parts.end());
  for (const Episode& episode : dataset.episodes()) parts.push_back(fmt::format("{} {}", episode.index, episode.begin));
  for (size_t i = 0; i < cameras.size(); ++i) parts.push_back(fmt::format("{} {}", cameras[i], frames.frame_bytes[i]));
  uint64_t sum = static_cast<uint64_t>(frames.samples);
  for (const std::string& part : parts) sum = checksum(reinterpret_cast<const std::byte*>(part.data()), part.size(), sum);
  return sum;
}

fs::path cache_folder(const std::string& chosen) {
  if (!chosen.empty()) return chosen;
  if (const auto cache = cxxrun::environment_variable("XDG_CACHE_HOME"); cache && !cache->empty()) return *cache + "/cxxrun/frames";
  const auto home = cxxrun::environment_variable("HOME");
  return home && !home->empty() ? fs::path(*home) / ".cache/cxxrun/frames" : fs::path();
}

uint64_t allocated_bytes(const fs::path& file) {
  struct stat status = {};
  return ::stat(file.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_blocks) * 512 : 0;
}

// What is free there, and what an existing file of the cache already has.
uint64_t available_space(const fs::path& file) {
  std::error_code failed;
  fs::path existing = file;
  while (!existing.empty() && !fs::exists(existing, failed) && existing != existing.root_path()) existing = existing.parent_path();
  const fs::space_info space = fs::space(existing, failed);
  return failed ? 0 : space.available + allocated_bytes(file);
}

std::string gigabytes(uint64_t bytes) { return fmt::format("{:.3g} GB", static_cast<double>(bytes) / 1e9); }

}  // namespace

CacheKind choose_cache(const std::string& mode, const CacheFacts& facts) {
  const bool fits = facts.needed <= facts.memory;
  if (mode == "none" || facts.needed == 0) return CacheKind::kNone;
  if (mode == "disk") return facts.needed <= facts.disk ? CacheKind::kDisk : CacheKind::kNone;
  if (fits) return CacheKind::kMemory;
  if (mode == "auto" && facts.needed <= facts.disk / 2) return CacheKind::kDisk;
  return facts.memory > 0 ? CacheKind::kPartialMemory : CacheKind::kNone;
}

uint64_t frame_memory(const DataOptions& options, int64_t local_ranks) {
  const uint64_t of_node = options.cache_gb > 0 ? static_cast<uint64_t>(options.cache_gb * 1e9) : memory_budget();
  return of_node / static_cast<uint64_t>(std::max<int64_t>(1, local_ranks));
}

std::shared_ptr<const Dataset> cached_dataset(std::shared_ptr<const Dataset> dataset, const SampleRequest& request,
                                              const DataOptions& options, const std::vector<std::string>& roots,
                                              uint64_t& memory) try {
  CachedFrames kept;
  FrameSet frames{dataset->size(), {}};
  for (const Feature& feature : dataset->features()) {
    const bool wanted = std::any_of(request.begin(), request.end(), [&](const FieldRequest& f) { return f.key == feature.key; });
    if (!wanted || feature.type != FeatureType::kVisual) continue;
    kept.cameras.push_back(feature.key);
    frames.frame_bytes.push_back(bytes_per_frame(feature));
  }
  if (options.cache == "none" || kept.cameras.empty()) return dataset;

  CacheFacts facts{frames.total_bytes(), memory, 0};
  uint64_t fingerprint = 0;
  fs::path file;
  const fs::path folder = cache_folder(options.cache_dir);
  if (options.cache != "ram" && facts.needed > (options.cache == "auto" ? facts.memory : 0) && !folder.empty()) {
    fingerprint = fingerprint_of(*dataset, kept.cameras, frames, roots);
    file = folder / fmt::format("{:016x}.frames", fingerprint);
    facts.disk = available_space(file);
  }
  const std::string content = fmt::format("{} frames of {} cameras, {}", dataset->size(), kept.cameras.size(), gigabytes(facts.needed));
  switch (choose_cache(options.cache, facts)) {
    case CacheKind::kNone:
      cxxrun::log_warning("frame cache: none: {}, need more than there is: {} of memory for each rank, {} of disk in '{}'; "
                          "every epoch decodes anew (data.cache, data.cache_gb, data.cache_dir)",
                          content, gigabytes(facts.memory), gigabytes(facts.disk), folder.string());
      return dataset;
    case CacheKind::kMemory:
    case CacheKind::kPartialMemory:
      kept.cache = memory_frame_cache(frames, memory);
      memory -= std::min(memory, facts.needed);
      cxxrun::log_info("frame cache: memory, {}{} in at most {} for each rank", content,
                       facts.needed > facts.memory ? ", as many as fit" : "", gigabytes(facts.memory));
      break;
    case CacheKind::kDisk:
      kept.cache = disk_frame_cache(frames, file, fingerprint);
      cxxrun::log_info("frame cache: {}, {}, {} free", file.string(), content, gigabytes(facts.disk));
  }
  return std::make_shared<CachedDataset>(std::move(dataset), std::move(kept));
} catch (const cxxrun::Error& error) {
  cxxrun::log_warning("frame cache: none: {}; every epoch decodes anew", error.what());
  return dataset;
} catch (const fs::filesystem_error& error) {
  cxxrun::log_warning("frame cache: none: {}; every epoch decodes anew", error.what());
  return dataset;
}

}  // namespace vla::data
