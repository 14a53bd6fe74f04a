#include "worker/data/hub_cache.hpp"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <vector>

#include <fmt/ranges.h>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/option_parse.hpp"
#include "common/worker_env.hpp"

namespace vla::data {
namespace {

namespace fs = std::filesystem;
using cxxrun::expand_home;

constexpr uintmax_t kLongestReference = 256;

struct Place {
  const char* variable;
  const char* below;
};

// As huggingface_hub and LeRobot find them: below the first variable that is set, else below ~/.cache.
fs::path cache_folder(std::initializer_list<Place> places, const char* below_cache) {
  for (const auto& [variable, below] : places) {
    const auto value = cxxrun::environment_variable(variable);
    if (value && !value->empty()) return *below ? expand_home(*value) / below : expand_home(*value);
  }
  return expand_home("~/.cache") / below_cache;
}
fs::path model_cache() {
  return cache_folder({{"HF_HUB_CACHE", ""}, {"HUGGINGFACE_HUB_CACHE", ""}, {"HF_HOME", "hub"}, {"XDG_CACHE_HOME", "huggingface/hub"}}, "huggingface/hub");
}
fs::path dataset_cache() {
  return cache_folder({{"HF_LEROBOT_HOME", ""}, {"HF_HOME", "lerobot"}, {"XDG_CACHE_HOME", "huggingface/lerobot"}}, "huggingface/lerobot");
}

bool is_name_part(const std::string& text) {
  return !text.empty() && text.front() != '.' && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '_' || c == '-';
  });
}

// KIND--ORG--NAME, or "" where `name` cannot be that of a repository.
std::string repository_folder(std::string_view kind, const std::string& name) {
  const size_t slash = name.find('/');
  if (slash == name.npos) return is_name_part(name) ? fmt::format("{}--{}", kind, name) : "";
  const std::string owner = name.substr(0, slash), part = name.substr(slash + 1);
  return is_name_part(owner) && is_name_part(part) ? fmt::format("{}--{}--{}", kind, owner, part) : "";
}

// The snapshots of a repository, the preferred first.
std::vector<fs::path> snapshots(const fs::path& repository) {
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(repository / "snapshots", error)) {
    if (entry.is_directory(error)) found.emplace_back(entry.last_write_time(error), entry.path());
  }
  std::sort(found.rbegin(), found.rend());
  std::string commit;
  const fs::path reference = repository / "refs" / "main";
  if (fs::is_regular_file(reference, error) && fs::file_size(reference, error) < kLongestReference) {
    commit = cxxrun::read_file(reference);
    commit.erase(std::find_if(commit.begin(), commit.end(), [](unsigned char c) { return std::isspace(c); }),
                 commit.end());
  }
  std::stable_partition(found.begin(), found.end(),
                        [&](const auto& snapshot) { return snapshot.second.filename() == commit; });
  std::vector<fs::path> paths;
  for (auto& [time, path] : found) paths.push_back(std::move(path));
  return paths;
}

}  // namespace

std::string find_pretrained_file(const std::string& name_or_path, const std::string& file) {
  const fs::path folder = expand_home(name_or_path);
  std::vector<std::string> looked_at{(folder / file).string()};
  std::error_code error;
  if (fs::exists(folder / file, error)) return looked_at.front();
  if (fs::is_directory(folder, error)) throw cxxrun::UsageError("the folder {} has no {}", folder.string(), file);
  const std::string model = repository_folder("models", name_or_path);
  if (model.empty())
    throw cxxrun::UsageError("{} is neither a folder nor the name of a model (ORGANISATION/NAME)", name_or_path);
  for (const fs::path& snapshot : snapshots(model_cache() / model)) {
    looked_at.push_back((snapshot / file).string());
    if (fs::exists(snapshot / file, error)) return looked_at.back();
  }
  if (looked_at.size() == 1) looked_at.push_back((model_cache() / model).string());
  throw cxxrun::UsageError("no {} of {} here: looked at {}. Download it with: huggingface-cli download {}", file,
                           name_or_path, fmt::join(looked_at, ", "), name_or_path);
}

std::string find_dataset_folder(const std::string& name_or_path) {
  std::error_code error;
  if (const fs::path folder = expand_home(name_or_path); fs::is_directory(folder, error)) return folder;
  const std::string repository = repository_folder("datasets", name_or_path);
  if (repository.empty()) throw cxxrun::UsageError("dataset.repo_id='{}' is neither a folder nor the name of a dataset (ORGANISATION/NAME)", name_or_path);
  const fs::path cache = dataset_cache(), downloaded = cache / "hub" / repository;
  if (fs::is_directory(cache / name_or_path, error)) return cache / name_or_path;
  if (const auto found = snapshots(downloaded); !found.empty()) return found.front();
  throw cxxrun::UsageError("dataset.repo_id='{}': no such dataset here: looked for a folder of that name, {} and {}. Download it with: huggingface-cli download "
                           "--repo-type dataset {} --local-dir {}",
                           name_or_path, (cache / name_or_path).string(), downloaded.string(), name_or_path, (cache / name_or_path).string());
}

}  // namespace vla::data
