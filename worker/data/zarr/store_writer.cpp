#include "worker/data/zarr/store_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

namespace vla::data {
namespace {

namespace fs = std::filesystem;

void write_group(const std::string& folder) {
  fs::create_directories(folder);
  cxxrun::write_file_atomically(folder + "/.zgroup", "{\n    \"zarr_format\": 2\n}");
}

void rename_path(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0)
    throw cxxrun::errno_error(fmt::format("cannot rename {} to {}", from, to));
}

}  // namespace

ZarrStoreWriter::ZarrStoreWriter(std::string output, bool overwrite) : target_(std::move(output)) {
  while (target_.size() > 1 && target_.ends_with('/')) target_.pop_back();
  if (fs::exists(fs::symlink_status(target_))) {
    if (!overwrite) throw cxxrun::UsageError("{} exists; choose another name, or remove it first", target_);
    if (fs::is_symlink(fs::symlink_status(target_)) || !fs::exists(target_ + "/.zgroup"))
      throw cxxrun::UsageError("{} is not a zarr folder, so it is not overwritten; choose another name", target_);
  }
  temporary_ = fmt::format("{}.tmp-{}", target_, ::getpid());
  write_group(temporary_);
  write_group(temporary_ + "/data");
  write_group(temporary_ + "/meta");
}

ZarrStoreWriter::~ZarrStoreWriter() {
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

void ZarrStoreWriter::commit() {
  if (const cxxrun::UniqueFd fd(::open(temporary_.c_str(), O_RDONLY | O_DIRECTORY));
      fd.get() < 0 || ::syncfs(fd.get()) != 0)
    throw cxxrun::errno_error("cannot sync " + temporary_);
  if (!fs::exists(target_)) {
    rename_path(temporary_, target_);
  } else if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
    // Not every file system can exchange two names at once. Folders cannot be renamed over one that has files.
    const std::string old = temporary_ + ".old";
    rename_path(target_, old);
    try {
      rename_path(temporary_, target_);
    } catch (const cxxrun::Error&) {
      rename_path(old, target_);
      throw;
    }
    rename_path(old, temporary_);
  }
  const fs::path parent = fs::path(target_).parent_path();
  cxxrun::sync_directory(parent.empty() ? "." : parent);
}

}  // namespace vla::data
