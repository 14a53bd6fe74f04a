#include "worker/data/inspect/check.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "common/error.hpp"
#include "worker/data/inspect/dataset_check.hpp"
#include "worker/data/inspect/episode_check.hpp"

namespace vla::data {
namespace {

// Each costs an opening of the dataset.
constexpr size_t kBrokenEpisodesNamed = 100;

struct Opened {
  std::shared_ptr<const Dataset> dataset;  // null: nothing could be opened
  std::vector<Finding> findings;
};

// Opens the episodes that can be opened and finds the others by halving.
class Opener {
 public:
  Opener(const CheckOptions& options, const EpisodeFiles& files) : options_(options), files_(files) {}

  Opened open() {
    std::vector<int64_t> episodes = options_.episodes;
    if (episodes.empty()) {
      episodes.resize(static_cast<size_t>(files_.episode_count()));
      std::iota(episodes.begin(), episodes.end(), int64_t{0});
    }
    try {
      return {try_open(options_.episodes), {}};
    } catch (const cxxrun::DataError& error) {
      if (episodes.size() < 2) {
        fail(error.what(), options_.episodes);
        return {nullptr, std::move(findings_)};
      }
    }
    std::sort(episodes.begin(), episodes.end());
    const size_t half = episodes.size() / 2;
    search({episodes.data(), half});
    search({episodes.data() + half, episodes.size() - half});
    return {good_.empty() ? nullptr : try_open(good_), std::move(findings_)};
  }

 private:
  std::shared_ptr<const Dataset> try_open(std::vector<int64_t> episodes) const {
    return open_dataset({.root = options_.root, .episodes = std::move(episodes), .tolerance_s = options_.tolerance_s});
  }

  void search(std::span<const int64_t> episodes) {
    if (findings_.size() > kBrokenEpisodesNamed) return;
    const std::vector<int64_t> part(episodes.begin(), episodes.end());
    try {
      try_open(part);
      good_.insert(good_.end(), part.begin(), part.end());
    } catch (const cxxrun::DataError& error) {
      if (part.size() == 1) return fail(error.what(), part);
      search(episodes.first(part.size() / 2));
      search(episodes.subspan(part.size() / 2));
    }
  }

  void fail(const std::string& message, const std::vector<int64_t>& episodes) {
    Place place;
    if (episodes.size() == 1) place = {files_.named_in(message, episodes[0]), episodes[0], {}, {}};
    findings_.push_back(
        finding_of(message, episodes.size() == 1 ? "broken_episode" : "cannot_open", place, "copy the dataset again"));
    if (findings_.size() == kBrokenEpisodesNamed) {
      findings_.push_back({Severity::kError, "broken_episode", place,
                           fmt::format("{} episodes are broken, those from {} on are not looked at",
                                       kBrokenEpisodesNamed, episodes[0] + 1),
                           "mend what is named and check again"});
    }
  }

  const CheckOptions& options_;
  const EpisodeFiles& files_;
  std::vector<int64_t> good_;
  std::vector<Finding> findings_;
};

std::vector<EpisodeSummary> check_episodes(const Dataset& dataset, const EpisodeFiles& files,
                                           const CheckOptions& options,
                                           const std::function<void(int64_t, int64_t)>& progress) {
  std::vector<EpisodeSummary> summaries(dataset.episodes().size());
  std::atomic<size_t> next = 0;
  std::mutex mutex;  // guards the two below, and `progress`
  int64_t done = 0;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      EpisodeChecker checker(dataset, files, {.decode = options.decode, .tolerance_s = options.tolerance_s});
      for (size_t e = next++; e < summaries.size(); e = next++) {
        summaries[e] = checker.check(dataset.episodes()[e]);
        const std::lock_guard lock(mutex);
        if (progress) progress(++done, static_cast<int64_t>(summaries.size()));
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
      next = summaries.size();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int64_t i = 1; i < std::min(options.threads, static_cast<int64_t>(summaries.size())); ++i)
      threads.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
  return summaries;
}

}  // namespace

CheckReport check_dataset(const CheckOptions& options, const std::function<void(int64_t, int64_t)>& progress) {
  CheckReport report{.dataset = options.root};
  try {
    const EpisodeFiles files(options.root);
    auto [dataset, findings] = Opener(options, files).open();
    report.findings = std::move(findings);
    if (!dataset) return report;
    report.episodes = static_cast<int64_t>(dataset->episodes().size());
    report.frames = dataset->size();
    const bool is_whole = report.findings.empty() && options.episodes.empty();
    std::vector<EpisodeSummary> summaries = check_episodes(*dataset, files, options, progress);
    for (EpisodeSummary& summary : summaries) {
      std::ranges::move(summary.findings, std::back_inserter(report.findings));
      summary.findings.clear();
    }
    std::ranges::stable_sort(report.findings, {},
                             [](const Finding& finding) { return finding.place.episode.value_or(0); });
    std::ranges::move(check_whole(*dataset, summaries, is_whole), std::back_inserter(report.findings));
  } catch (const cxxrun::DataError& error) {  // of the metadata, without which there are no episodes
    report.findings.push_back(finding_of(error.what(), "cannot_open", {}, "copy the dataset again"));
  }
  return report;
}

}  // namespace vla::data
