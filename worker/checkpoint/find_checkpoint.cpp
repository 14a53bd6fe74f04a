#include "worker/checkpoint/find_checkpoint.hpp"

#include <charconv>
#include <vector>

#include <fmt/ranges.h>

#include "common/error.hpp"
#include "common/log.hpp"
#include "worker/checkpoint/checkpoint_files.hpp"
#include "worker/checkpoint/retention.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;
using cxxrun::UsageError;

struct Search {
  std::optional<fs::path> found;
  std::vector<std::string> passed_over;  // what is wrong with newer ones

  bool takes(const fs::path& checkpoint) {
    const auto problem = checkpoint_problem(checkpoint);
    if (problem) {
      passed_over.push_back(fmt::format("checkpoint {} is passed over: {}", checkpoint.string(), *problem));
    } else {
      found = fs::canonical(checkpoint);
    }
    return !problem;
  }
  // For the end of an error's text.
  std::string reasons() const { return passed_over.empty() ? "" : fmt::format(" ({})", fmt::join(passed_over, "; ")); }
};

// The checkpoint that `last` names. Where the link is missing or names a torn one, the newest complete one.
Search last_checkpoint(const fs::path& checkpoints) {
  Search search;
  std::error_code broken_link;
  const fs::path last = fs::canonical(checkpoints / "last", broken_link);
  if (!broken_link && search.takes(last)) return search;
  const auto steps = list_checkpoints(checkpoints);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const fs::path checkpoint = checkpoints / checkpoint_name(*step);
    if (checkpoint.filename() != last.filename() && search.takes(checkpoint)) break;
  }
  if (search.found) {
    for (const std::string& line : search.passed_over) cxxrun::log_info("{}", line);
  }
  return search;
}

bool looks_like_checkpoint(const fs::path& path) {
  return fs::is_directory(path / "training_state") || fs::is_directory(path / "pretrained_model");
}

// Other programs' names for ours, where no such file is: "checkpoint-19000" is 019000, "best_model.pth" is best.
fs::path by_our_name(const fs::path& path, const fs::path& output_dir) {
  const std::string name = path.filename();
  std::string ours = name == "best_model.pth" ? "best" : "";
  constexpr std::string_view kPrefix = "checkpoint-";
  int64_t step = 0;
  if (name.starts_with(kPrefix) && std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step).ec == std::errc())
    ours = checkpoint_name(step);
  if (ours.empty() || fs::exists(path)) return path;
  for (const fs::path& folder : {path.parent_path(), path.parent_path() / "checkpoints", output_dir / "checkpoints"}) {
    if (looks_like_checkpoint(folder / ours)) return folder / ours;
  }
  return path;
}

}  // namespace

std::optional<fs::path> find_checkpoint(const std::string& resume, const fs::path& output_dir) {
  if (resume.empty() || resume == "false") return std::nullopt;
  if (resume == "true" || resume == "auto") {
    const fs::path folder = output_dir / "checkpoints";
    const Search search = last_checkpoint(folder);
    if (search.found) return search.found;
    if (!search.passed_over.empty()) {
      throw UsageError("--resume={}: {} holds no complete checkpoint{}; remove them, or choose another --output_dir", resume,
                       folder.string(), search.reasons());
    }
    if (resume == "auto") return std::nullopt;
    throw UsageError("--resume=true found no checkpoint in {}: check --output_dir, or use --resume=auto to start anew where there is none",
                     folder.string());
  }
  fs::path path = fs::absolute(resume);
  if (!path.has_filename()) path = path.parent_path();  // a slash at the end
  path = by_our_name(path, output_dir);
  for (const fs::path& candidate : {path, path.parent_path(), path.parent_path().parent_path()}) {
    if (!looks_like_checkpoint(candidate)) continue;
    // `last` is a wish for the newest; only a folder's own name insists on that one.
    if (candidate.filename() == "last" && fs::is_symlink(candidate)) {
      if (const auto found = last_checkpoint(candidate.parent_path()).found) return found;
    }
    if (const auto problem = checkpoint_problem(candidate)) {
      throw UsageError("--resume={}: not a complete checkpoint: {}; continue from another one, or from the newest complete one with --resume={}",
                       resume, *problem, fs::absolute(candidate).parent_path().string());
    }
    return fs::canonical(candidate);
  }
  std::string reasons;
  for (const fs::path& folder : {path, path / "checkpoints"}) {
    const Search search = last_checkpoint(folder);
    if (search.found) return search.found;
    reasons += search.reasons();
  }
  throw UsageError("--resume={}: neither a checkpoint (a folder with pretrained_model/ and training_state/) nor a folder with a complete one{}",
                   resume, reasons);
}

}  // namespace vla
