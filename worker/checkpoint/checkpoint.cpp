#include "worker/checkpoint/checkpoint.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/statvfs.h>

#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/log.hpp"
#include "worker/checkpoint/retention.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;
using cxxrun::Error;
using cxxrun::UsageError;

constexpr int kFormatVersion = 1;
constexpr char kStateFile[] = "training_state/training_state.json";
constexpr char kOptimizerFile[] = "training_state/optimizer.safetensors";
constexpr char kWeightsFile[] = "pretrained_model/model.safetensors";

bool is_checkpoint(const fs::path& path) { return fs::exists(path / kStateFile) && fs::exists(path / kWeightsFile); }

// The checkpoint that `last` names. Where the link is missing or broken, the newest one.
std::optional<fs::path> last_checkpoint(const fs::path& checkpoints) {
  if (is_checkpoint(checkpoints / "last")) return fs::canonical(checkpoints / "last");
  const auto steps = list_checkpoints(checkpoints);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (is_checkpoint(checkpoints / checkpoint_name(*step))) return fs::canonical(checkpoints / checkpoint_name(*step));
  }
  return std::nullopt;
}

// Puts `from` in the place of `to`, which may be a folder with contents; what was there is then at `from`.
void exchange_or_rename(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != ENOENT && errno != EINVAL && errno != ENOSYS) throw cxxrun::errno_error("cannot replace " + to.string());
  if (fs::exists(to)) {  // a file system that cannot exchange
    fs::rename(to, to.parent_path() / leftover_name(to.filename().string() + ".replaced"));
  }
  fs::rename(from, to);
}

void replace_link(const fs::path& link, const std::string& target) {
  const fs::path temporary = link.parent_path() / leftover_name("last");
  fs::remove(temporary);
  fs::create_symlink(target, temporary);
  fs::rename(temporary, link);
}

std::string free_space(const fs::path& folder) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) return "unknown";
  return fmt::format("{} MiB", status.f_bavail * status.f_frsize >> 20);
}

}  // namespace

std::string fingerprint(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

void add_training_state(CheckpointFiles& files, const TrainingState& state, const TensorMap& optimizer) {
  const nlohmann::ordered_json object = {
      {"format_version", kFormatVersion},           {"step", state.step},
      {"consumed_samples", state.consumed_samples}, {"seed", state.seed},
      {"global_batch", state.global_batch},         {"world_size", state.world_size},
      {"schedule_steps", state.schedule_steps},     {"config_hash", state.config_hash}};
  files.texts[kStateFile] = object.dump(2);
  files.tensors[kOptimizerFile] = optimizer;
}

TrainingState read_training_state(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kStateFile;
  try {
    const auto object = nlohmann::json::parse(cxxrun::read_file(path));
    const int version = object.at("format_version");
    if (version > kFormatVersion) {
      throw Error("{} has format {}, this program reads formats up to {}: use a newer vla_worker", path.string(),
                  version, kFormatVersion);
    }
    TrainingState state{.step = object.at("step"),
                        .consumed_samples = object.at("consumed_samples"),
                        .seed = object.at("seed"),
                        .global_batch = object.at("global_batch"),
                        .world_size = object.at("world_size"),
                        .schedule_steps = object.at("schedule_steps"),
                        .config_hash = object.at("config_hash")};
    if (state.step < 0 || state.global_batch <= 0) {
      throw Error("{}: step {} or global_batch {} is impossible", path.string(), state.step, state.global_batch);
    }
    return state;
  } catch (const nlohmann::json::exception& e) {
    throw Error("{} is not a training state: {}", path.string(), e.what());
  }
}

TensorMap read_optimizer_state(const fs::path& checkpoint) { return load_safetensors(checkpoint / kOptimizerFile); }

std::optional<fs::path> find_checkpoint(const std::string& resume, const fs::path& output_dir) {
  if (resume.empty() || resume == "false") return std::nullopt;
  if (resume == "true" || resume == "auto") {
    auto found = last_checkpoint(output_dir / "checkpoints");
    if (!found && resume == "true") {
      throw UsageError(
          "--resume=true found no checkpoint in {}: check --output_dir, or use --resume=auto to start anew where there "
          "is none",
          (output_dir / "checkpoints").string());
    }
    return found;
  }
  fs::path path = fs::absolute(resume);
  if (!path.has_filename()) path = path.parent_path();  // a slash at the end
  for (const fs::path& candidate : {path, path.parent_path(), path.parent_path().parent_path()}) {
    if (is_checkpoint(candidate)) return fs::canonical(candidate);
  }
  for (const fs::path& folder : {path, path / "checkpoints"}) {
    if (auto found = last_checkpoint(folder)) return found;
  }
  throw UsageError("--resume={}: neither a checkpoint (a folder with {} and {}) nor a folder of checkpoints", resume,
                   kStateFile, kWeightsFile);
}

CheckpointWriter::CheckpointWriter(Options options)
    : options_(std::move(options)), checkpoints_(options_.output_dir / "checkpoints") {
  fs::create_directories(checkpoints_);
}

CheckpointWriter::~CheckpointWriter() {
  try {
    wait();
  } catch (const std::exception& e) {
    cxxrun::log_error("{}", e.what());
  }
}

void CheckpointWriter::save(int64_t step, CheckpointFiles files) {
  wait();
  copy_tensors_to_host(files);
  thread_ = std::jthread([this, step, files = std::move(files)] {
    try {
      write(step, files);
    } catch (const std::exception& e) {
      error_ = std::make_exception_ptr(
          Error("checkpoint {} was not saved, earlier ones are untouched: {} ({} free in {})", checkpoint_name(step),
                e.what(), free_space(checkpoints_), checkpoints_.string()));
    }
  });
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void CheckpointWriter::write(int64_t step, const CheckpointFiles& files) {
  const std::string name = checkpoint_name(step);
  const fs::path temporary = checkpoints_ / leftover_name(name + ".saving");
  remove_leftovers(checkpoints_);
  options_.after_each_operation();
  try {
    fs::create_directory(temporary);
    write_files(temporary, files, options_.after_each_operation);
    exchange_or_rename(temporary, checkpoints_ / name);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);  // gives the space back
    throw;
  }
  cxxrun::sync_directory(checkpoints_);
  options_.after_each_operation();
  replace_link(checkpoints_ / "last", name);
  cxxrun::sync_directory(checkpoints_);
  options_.after_each_operation();
  try {
    for (const int64_t old : plan_removal(list_checkpoints(checkpoints_), options_.keep, step)) {
      remove_checkpoint(checkpoints_, old);
      options_.after_each_operation();
    }
    remove_leftovers(checkpoints_);
  } catch (const fs::filesystem_error& e) {
    cxxrun::log_warning("old checkpoints could not be removed: {}", e.what());
  }
}

}  // namespace vla
