#include "worker/checkpoint/resume_check.hpp"

#include <algorithm>
#include <map>

#include <fmt/ranges.h>

#include "common/error.hpp"
#include "common/log.hpp"
#include "common/option_text.hpp"
#include "common/yaml_config.hpp"

namespace vla {
namespace {

using cxxrun::Setting;

// Options, beside seed, batch and data, that the order of the samples depends on.
constexpr std::string_view kOrderOptions[] = {"training.drop_last", "dataset.datasets"};

std::map<std::string, std::string> texts_of(const std::vector<Setting>& settings) {
  std::map<std::string, std::string> texts;
  for (const Setting& setting : settings) {
    texts[setting.name] = setting.kind == Setting::Kind::kList ? fmt::format("[{}]", fmt::join(setting.items, ", "))
                          : setting.items.empty()              ? "null"
                                                               : setting.text();
  }
  return texts;
}

}  // namespace

ResumeCheck check_resume(const std::filesystem::path& checkpoint, const TrainingState& stored, const TrainingState& now,
                         const cxxrun::OptionTable& table) {
  ResumeCheck check;
  const auto conflict = [&](const char* what, const auto& before, const auto& after) {
    if (before != after) check.conflicts.push_back(fmt::format("{}: {} -> {}", what, before, after));
  };
  conflict("training.seed", stored.seed, now.seed);
  if (stored.global_batch > 0) conflict("samples per step", stored.global_batch, now.global_batch);
  if (!stored.data_fingerprint.empty() && !now.data_fingerprint.empty())
    conflict("the training data (fingerprint of episodes, features and statistics)", stored.data_fingerprint, now.data_fingerprint);

  const std::filesystem::path config = checkpoint / "training_state" / "config.yaml";
  if (stored.by_lerobot || !std::filesystem::exists(config)) return check;
  const auto before = texts_of(cxxrun::read_yaml_settings(config));
  for (const auto& [name, text] : texts_of(cxxrun::parse_yaml_settings(cxxrun::dump_yaml(table), "configuration"))) {
    const auto found = before.find(name);
    // An option that the older program did not have keeps its default; where results go is no part of the training.
    if (found == before.end() || found->second == text || name == "output_dir" || name == "policy.path" || name == "training.seed") continue;
    const std::string& source = const_cast<cxxrun::OptionTable&>(table).find(name)->source;
    const std::string line = fmt::format("{}: {} -> {}{}", name, found->second, text, source.empty() ? "" : " (" + source + ")");
    const bool changes_order = std::ranges::find(kOrderOptions, name) != std::end(kOrderOptions);
    (changes_order ? check.conflicts : check.changes).push_back(line);
  }
  return check;
}

void ResumeCheck::require(const std::filesystem::path& checkpoint, bool resume_changed) const {
  for (const std::string& line : changes) cxxrun::log_info("changed since the checkpoint: {}", line);
  if (conflicts.empty()) return;
  if (resume_changed) {
    cxxrun::log_warning("the order of the samples differs from that of the run that is continued: {}", fmt::join(conflicts, "; "));
    return;
  }
  throw cxxrun::UsageError("{} cannot be continued with the same order of samples: {}; set it back, or start anew from its weights with "
                           "--policy.path={}, or accept another order with --resume_changed=true",
                           checkpoint.string(), fmt::join(conflicts, "; "), checkpoint.string());
}

}  // namespace vla
