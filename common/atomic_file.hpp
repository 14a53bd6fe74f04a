// A file that appears on disk whole or not at all. Writes go to a temporary file in the same folder; commit() syncs it,
// renames it over `path` and syncs the folder. Without commit() nothing remains, unless the process is killed:
// remove_leftovers_of(). Every failure throws Error with the path.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "common/unique_fd.hpp"

namespace cxxrun {

class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  UniqueFd fd_;
};

// fsync of a folder: makes renames and new names inside it durable.
void sync_directory(const std::filesystem::path& directory);

void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// Removes the temporary files of killed writers of `path`. For its only writer: another's would be lost with them.
void remove_leftovers_of(const std::filesystem::path& path);

// The whole file as bytes. Throws Error with the path; a folder is an error.
std::string read_file(const std::filesystem::path& path);

}  // namespace cxxrun
