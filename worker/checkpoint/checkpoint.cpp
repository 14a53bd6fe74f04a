#include "worker/checkpoint/checkpoint.hpp"

#include <fcntl.h>
#include <stdio.h>

#include <chrono>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/log.hpp"

namespace vla {
namespace {

namespace fs = std::filesystem;
using cxxrun::Error;

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
  const fs::path temporary = link.parent_path() / leftover_name(link.filename());
  fs::remove(temporary);
  fs::create_symlink(target, temporary);
  fs::rename(temporary, link);
}

void warn_of_little_space(const fs::path& folder, int64_t bytes) {
  const auto available = free_bytes(folder);
  if (!available || *available >= 3 * bytes) return;
  cxxrun::log_warning("{} free in {}, room for {} checkpoints of {} MiB: free some, or set training.keep_checkpoints", free_space(folder),
                      folder.string(), *available / bytes, (bytes >> 20) + 1);
}

}  // namespace

CheckpointWriter::CheckpointWriter(Options options)
    : options_(std::move(options)),
      checkpoints_(options_.output_dir / "checkpoints"),
      snapshot_(options_.device),
      best_(options_.best),
      saved_best_(options_.best) {
  std::error_code failed;
  fs::create_directories(checkpoints_, failed);
  if (failed) throw Error("cannot make the folder of checkpoints {}: {}; choose another --output_dir", checkpoints_.string(), failed.message());
  if (options_.expected_bytes > 0) warn_of_little_space(checkpoints_, options_.expected_bytes);
}

CheckpointWriter::~CheckpointWriter() { wait(); }

void CheckpointWriter::take(CheckpointFiles files) {
  const auto start = std::chrono::steady_clock::now();
  wait();
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  if (waited.count() >= 0.1 && !std::exchange(warned_of_waiting_, true)) {
    cxxrun::log_warning("training waited {:.1f} s for the checkpoint before to be written: save less often (training.save_freq) or to a "
                        "faster disk; this is said once",
                        waited.count());
  }
  files_ = std::move(files);
  snapshot_.take(files_);
}

void CheckpointWriter::save(TrainingState state, std::optional<double> validation_loss) {
  if (validation_loss && (!best_ || *validation_loss < best_->loss)) best_ = {state.step, *validation_loss};
  state.best = best_;
  thread_ = std::jthread([this, state = std::move(state)] {
    try {
      add_training_state(files_, state);
      snapshot_.bring_home();
      write(state.step);
      is_saved_ = true;
    } catch (const std::exception& e) {
      is_saved_ = false;
      cxxrun::log_error("checkpoint {} was not saved, earlier ones are untouched and training goes on: {} ({} free in {})",
                        checkpoint_name(state.step), e.what(), free_space(checkpoints_), checkpoints_.string());
    }
  });
}

bool CheckpointWriter::wait() {
  if (!thread_.joinable()) return is_saved_;
  thread_.join();
  if (!is_saved_) ++failures_;
  // What was not saved cannot be the best checkpoint.
  (is_saved_ ? saved_best_ : best_) = is_saved_ ? best_ : saved_best_;
  return is_saved_;
}

void CheckpointWriter::write(int64_t step) {
  const std::string name = checkpoint_name(step);
  const fs::path temporary = checkpoints_ / leftover_name(name + ".saving");
  remove_leftovers(checkpoints_);
  options_.after_each_operation();
  require_free_space(checkpoints_, files_.bytes());
  try {
    fs::create_directory(temporary);
    write_files(temporary, files_, options_.after_each_operation);
    exchange_or_rename(temporary, checkpoints_ / name);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);  // gives the space back
    throw;
  }
  cxxrun::sync_directory(checkpoints_);
  options_.after_each_operation();
  replace_links(step);
  std::vector<int64_t> protected_steps{step};
  if (best_) protected_steps.push_back(best_->step);
  try {
    for (const int64_t old : plan_removal(list_checkpoints(checkpoints_), options_.retention, protected_steps)) {
      remove_checkpoint(checkpoints_, old);
      options_.after_each_operation();
    }
    remove_leftovers(checkpoints_);
  } catch (const fs::filesystem_error& e) {
    cxxrun::log_warning("old checkpoints could not be removed: {}", e.what());
  }
}

void CheckpointWriter::replace_links(int64_t step) {
  replace_link(checkpoints_ / "last", checkpoint_name(step));
  cxxrun::sync_directory(checkpoints_);
  options_.after_each_operation();
  // A run that continues in another folder has no best checkpoint there yet.
  if (!best_ || !fs::exists(checkpoints_ / checkpoint_name(best_->step))) return;
  replace_link(checkpoints_ / "best", checkpoint_name(best_->step));
  cxxrun::sync_directory(checkpoints_);
  options_.after_each_operation();
}

}  // namespace vla
