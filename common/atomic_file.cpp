#include "common/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "common/error.hpp"

namespace cxxrun {
namespace {

constexpr std::string_view kTemporary = ".tmp-", kUnique = "XXXXXX";  // mkostemp(3) puts six characters in place of the X

std::filesystem::path folder_of(const std::filesystem::path& path) { return path.has_parent_path() ? path.parent_path() : "."; }

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  std::string name = path_.string().append(kTemporary).append(kUnique);
  fd_.reset(::mkostemp(name.data(), O_CLOEXEC));
  if (!fd_) throw errno_error("cannot create a file beside " + path_.string());
  temporary_ = name;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(fd_.get(), 0666 & ~mask);  // mkostemp makes files private; ours should look like any other
}

AtomicFile::~AtomicFile() {
  if (fd_) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw errno_error("cannot write " + temporary_.string());
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::commit() {
  if (::fsync(fd_.get()) != 0) throw errno_error("cannot sync " + temporary_.string());
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw errno_error("cannot replace " + path_.string());
  fd_.reset();
  sync_directory(folder_of(path_));
}

void sync_directory(const std::filesystem::path& directory) {
  const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) throw errno_error("cannot open folder " + directory.string());
  // Some network file systems refuse to sync a folder; the rename itself has happened.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) throw errno_error("cannot sync folder " + directory.string());
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void remove_leftovers_of(const std::filesystem::path& path) {
  const std::string begin = path.filename().string().append(kTemporary);
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(folder_of(path), missing)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(begin) && name.size() == begin.size() + kUnique.size() && ::unlink(entry.path().c_str()) != 0 && errno != ENOENT) {
      throw errno_error("cannot remove " + entry.path().string());
    }
  }
}

std::string read_file(const std::filesystem::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw errno_error("cannot open " + path.string());
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count == 0) return text;
    if (count > 0) {
      text.append(buffer, static_cast<size_t>(count));
    } else if (errno != EINTR) {
      throw errno_error("cannot read " + path.string());
    }
  }
}

}  // namespace cxxrun
