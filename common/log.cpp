#include "common/log.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <mutex>

#include <fmt/chrono.h>

#include "common/error.hpp"
#include "common/unique_fd.hpp"

namespace cxxrun {
namespace {

std::mutex mutex;
int64_t rank = 0;
UniqueFd file;
std::string status;

size_t columns_of(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

// No escape sequences: spaces also work through pipes and in files.
std::string erased_status() {
  return fmt::format("\r{:{}}\r", "", columns_of(status));
}

void put(std::FILE* stream, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

}  // namespace

void set_log_rank(int64_t value) {
  const std::lock_guard lock(mutex);
  rank = value;
}

void open_log_file(const std::filesystem::path& path) {
  UniqueFd opened(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!opened) throw errno_error("cannot open log file " + path.string());
  const std::lock_guard lock(mutex);
  file = std::move(opened);
}

void close_log_file() {
  const std::lock_guard lock(mutex);
  file.reset();
}

void set_status_line(const std::string& text) {
  const std::lock_guard lock(mutex);
  if (text.empty() && status.empty()) return;
  const size_t before = columns_of(status), after = columns_of(text);
  // Over the old text instead of after erasing it, which would flicker.
  put(stdout, text.empty() ? erased_status() : fmt::format("\r{}{:{}}", text, "", before > after ? before - after : 0));
  status = text;
}

void log_line(LogLevel level, const std::string& text) {
  const std::lock_guard lock(mutex);
  if (level == LogLevel::kInfo && rank != 0) return;
  const char* kind = level == LogLevel::kWarning ? "warning: " : "error: ";
  const std::string line = level == LogLevel::kInfo ? text + "\n" : fmt::format("[rank {}] {}{}\n", rank, kind, text);
  std::FILE* stream = level == LogLevel::kInfo ? stdout : stderr;
  if (!status.empty()) put(stdout, erased_status());
  put(stream, line);
  if (!status.empty()) put(stdout, status);
  if (file) {
    // One write: with O_APPEND, ranks that share the file do not mix their lines.
    const std::string dated = fmt::format("{:%Y-%m-%d %H:%M:%S} {}", fmt::localtime(std::time(nullptr)), line);
    [[maybe_unused]] const ssize_t written = ::write(file.get(), dated.data(), dated.size());
  }
}

}  // namespace cxxrun
