#include "worker/data/stats_merge.hpp"

#include <cmath>

#include "common/error.hpp"

namespace vla::data {
namespace {

using FeatureStats = std::map<std::string, StatTensor>;

double count_of(const FeatureStats& stats, double frames, const std::string& place) {
  const auto found = stats.find("count");
  const double count = found == stats.end() || found->second.values.empty() ? frames : found->second.values[0];
  if (!(count > 0) || !std::isfinite(count))
    throw cxxrun::DataError("{} has a count of {}; recompute the statistics", place, count);
  return count;
}

double least(double a, double b) { return a < b || std::isnan(a) ? a : b; }
double largest(double a, double b) { return a > b || std::isnan(a) ? a : b; }

// One value of each part's statistic -> the whole's. Variances need the means of both.
void merge_feature(FeatureStats& into, const FeatureStats& part, double count, const std::string& place) {
  const double before = into.at("count").values[0], total = before + count;
  for (auto stat = into.begin(); stat != into.end();) {
    const auto& [name, whole] = *stat;
    const auto other = part.find(name);
    const bool known = name == "mean" || name == "std" || name == "min" || name == "max" || name.starts_with('q');
    if (name != "count" && (!known || other == part.end())) {
      stat = into.erase(stat);
      continue;
    }
    if (name != "count" && other->second.values.size() != whole.values.size()) {
      throw cxxrun::DataError("{}: '{}' has {} values, but those before it have {}; recompute the statistics", place,
                              name, other->second.values.size(), whole.values.size());
    }
    ++stat;
  }
  const auto mean = into.find("mean"), std = into.find("std");
  if (std != into.end() && (mean == into.end() || mean->second.values.size() != std->second.values.size()))
    into.erase(std);
  const auto weighted = [&](double a, double b) { return (a * before + b * count) / total; };
  const auto combine = [&](const std::string& name, auto&& function) {
    const auto whole = into.find(name);
    if (whole == into.end()) return;
    for (size_t i = 0; i < whole->second.values.size(); ++i)
      whole->second.values[i] = function(i, whole->second.values[i], part.at(name).values[i]);
  };
  combine("std", [&](size_t i, double a, double b) {
    const double mean_a = into.at("mean").values[i], mean_b = part.at("mean").values[i];
    const double middle = weighted(mean_a, mean_b);
    return std::sqrt(
        weighted(a * a + (mean_a - middle) * (mean_a - middle), b * b + (mean_b - middle) * (mean_b - middle)));
  });
  combine("mean", [&](size_t, double a, double b) { return weighted(a, b); });
  combine("min", [](size_t, double a, double b) { return least(a, b); });
  combine("max", [](size_t, double a, double b) { return largest(a, b); });
  for (const auto& [name, tensor] : part) {
    if (name.starts_with('q')) combine(name, [&](size_t, double a, double b) { return weighted(a, b); });
  }
  into["count"].values = {total};
}

}  // namespace

void StatsMerger::add(const DatasetStats& part, double frames, const std::string& source) {
  for (const auto& [key, stats] : part) {
    const std::string place = fmt::format("{}: statistics of '{}'", source, key);
    const double count = count_of(stats, frames, place);
    const auto [entry, is_new] = merged_.emplace(key, stats);
    if (is_new) {
      entry->second["count"] = {{1}, {count}};
    } else {
      merge_feature(entry->second, stats, count, place);
    }
  }
}

}  // namespace vla::data
