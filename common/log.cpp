#include "common/log.hpp"

#include <fcntl.h>

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

void log_line(LogLevel level, const std::string& text) {
  const std::lock_guard lock(mutex);
  if (level == LogLevel::kInfo && rank != 0) return;
  const char* kind = level == LogLevel::kWarning ? "warning: " : "error: ";
  const std::string line = level == LogLevel::kInfo ? text + "\n" : fmt::format("[rank {}] {}{}\n", rank, kind, text);
  std::FILE* stream = level == LogLevel::kInfo ? stdout : stderr;
  std::fwrite(line.data(), 1, line.size(), stream);
  std::fflush(stream);
  if (file) {
    // One write: with O_APPEND, ranks that share the file do not mix their lines.
    const std::string dated = fmt::format("{:%Y-%m-%d %H:%M:%S} {}", fmt::localtime(std::time(nullptr)), line);
    [[maybe_unused]] const ssize_t written = ::write(file.get(), dated.data(), dated.size());
  }
}

}  // namespace cxxrun
