#include <set>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/error.hpp"
#include "worker/checkpoint/json_file.hpp"
#include "worker/checkpoint/lerobot_format.hpp"
#include "worker/policies/normalizer.hpp"

namespace vla {
namespace {

using cxxrun::Error;
using json = nlohmann::ordered_json;

// Without these LeRobot leaves a feature as it is, silently, and the policy sees numbers it was not trained on.
void require_stats(const json& config, const data::DatasetStats& stats, const std::string& set, const std::filesystem::path& file) {
  std::vector<std::string> missing;
  std::set<std::string> sets;
  for (const auto& [key, feature] : config.at("features").items()) {
    if (config.at("norm_map").value(feature.at("type").get<std::string>(), "IDENTITY") == "IDENTITY" || stats.contains(key)) continue;
    missing.push_back(key);
    for (const auto& [name, of_feature] : stats) {
      if (name.ends_with("." + key)) sets.insert(name);
    }
  }
  if (missing.empty()) return;
  if (!sets.empty()) {
    throw Error("{} has no statistics of {}, but those of several datasets, under {}: choose one of these sets by name (the part in front "
                "of the feature's), or take the statistics of the training dataset, as fine-tuning with --policy.path does",
                file.string(), fmt::join(missing, ", "), fmt::join(sets, ", "));
  }
  throw Error("{} has no statistics of {}{}: without them the policy would see numbers it was not trained on; fine-tuning with "
              "--policy.path takes those of the training dataset",
              file.string(), fmt::join(missing, ", "), set.empty() ? "" : " in the set '" + set + "'");
}

}  // namespace

data::DatasetStats read_pretrained_stats(const std::filesystem::path& pretrained_model, const std::string& set) {
  const std::filesystem::path path = pretrained_model / "policy_preprocessor.json";
  const json processor = read_json_object(path);
  try {
    for (const json& step : processor.at("steps")) {
      if (step.at("registry_name") != "normalizer_processor" || !step.contains("state_file")) continue;
      const std::filesystem::path file = step["state_file"].get<std::string>();
      if (file != file.filename())
        throw Error("{}: state_file '{}' is not a file beside it", path.string(), file.string());
      data::DatasetStats stats;
      for (auto& [key, of_feature] : stats_from_tensors(load_safetensors(pretrained_model / file))) {
        if (set.empty()) stats[key] = of_feature;
        if (!set.empty() && key.starts_with(set + ".")) stats[key.substr(set.size() + 1)] = of_feature;
      }
      require_stats(step.at("config"), stats, set, pretrained_model / file);
      return stats;
    }
  } catch (const json::exception& e) {
    throw Error("{} is not a processor: {}", path.string(), e.what());
  }
  throw Error("{}: no step 'normalizer_processor' with a state_file, so the policy's statistics are unknown",
              path.string());
}

}  // namespace vla
