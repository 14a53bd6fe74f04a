#include "worker/checkpoint/checkpoint_files.hpp"

#include <sys/statvfs.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "worker/checkpoint/json_file.hpp"
#include "worker/checkpoint/safetensors_header.hpp"

namespace vla {

namespace fs = std::filesystem;

int64_t CheckpointFiles::bytes() const {
  size_t total = 0;
  for (const auto& [path, text] : texts) total += text.size();
  for (const auto& [path, map] : tensors) {
    for (const auto& [name, tensor] : map) total += tensor.nbytes();
  }
  return static_cast<int64_t>(total);
}

std::optional<int64_t> free_bytes(const fs::path& folder) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) return std::nullopt;
  return static_cast<int64_t>(status.f_bavail * status.f_frsize);
}

void require_free_space(const fs::path& folder, int64_t bytes) {
  const int64_t needed = bytes + bytes / 20;
  const auto available = free_bytes(folder);
  if (available && *available < needed) throw cxxrun::Error("it needs {} MiB", (needed >> 20) + 1);
}

std::string free_space(const fs::path& folder) {
  const auto bytes = free_bytes(folder);
  return bytes ? fmt::format("{} MiB", *bytes >> 20) : "unknown";
}

void write_files(const fs::path& folder, const CheckpointFiles& files, const std::function<void()>& after_each) {
  nlohmann::json sizes = nlohmann::json::object();
  const auto write = [&](const std::string& name, const auto& write_to) {
    fs::create_directories((folder / name).parent_path());
    write_to(folder / name);
    sizes[name] = fs::file_size(folder / name);
    after_each();
  };
  for (const auto& [name, tensors] : files.tensors) {
    write(name, [&map = tensors](const fs::path& path) { save_safetensors(path, map); });
  }
  for (const auto& [name, text] : files.texts) {
    write(name, [&string = text](const fs::path& path) { cxxrun::write_file_atomically(path, string); });
  }
  const std::string manifest = sizes.dump(1);
  write(kManifestFile, [&](const fs::path& path) { cxxrun::write_file_atomically(path, manifest); });
  cxxrun::sync_directory(folder);
}

namespace {

void require_sizes(const fs::path& checkpoint) {
  const auto sizes = read_json_object(checkpoint / kManifestFile);
  for (const auto& [name, size] : sizes.items()) {
    std::error_code failed;
    const uintmax_t actual = fs::file_size(checkpoint / name, failed);
    if (failed) throw cxxrun::Error("{} is missing", (checkpoint / name).string());
    if (size != actual) throw cxxrun::Error("{} is incomplete: {} of {} bytes", (checkpoint / name).string(), actual, size.dump());
  }
}

void require_readable(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") SafetensorsFile{entry.path()};
    // Lists too: LeRobot's groups of the optimizer.
    if (entry.path().extension() == ".json") read_json_file(entry.path());
  }
}

}  // namespace

std::optional<std::string> checkpoint_problem(const fs::path& checkpoint) {
  try {
    if (!fs::is_directory(checkpoint)) throw cxxrun::Error("{} is no folder", checkpoint.string());
    const bool by_lerobot = fs::exists(checkpoint / "training_state/training_step.json");
    const char* state = by_lerobot ? "training_state/training_step.json" : "training_state/training_state.json";
    for (const char* name : {"pretrained_model/config.json", "pretrained_model/model.safetensors", state,
                             by_lerobot ? "training_state/optimizer_state.safetensors" : "training_state/optimizer.safetensors"}) {
      if (!fs::exists(checkpoint / name)) throw cxxrun::Error("{} is missing", (checkpoint / name).string());
    }
    if (fs::exists(checkpoint / kManifestFile)) require_sizes(checkpoint);
    for (const char* folder : {"pretrained_model", "training_state"}) require_readable(checkpoint / folder);
    return std::nullopt;
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace vla
