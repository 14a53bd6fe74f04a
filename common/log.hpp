// Messages for people. Information goes to stdout, on rank 0 only; warnings and errors go to stderr with the rank in
// front. All of them also go to the log file, if one is open, with date and time. Lines are whole however many threads
// write. A status line, such as a progress bar, stays below them on stdout and is no part of the file. Never throws: a message
// that cannot be written is lost.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace cxxrun {

enum class LogLevel : uint8_t { kInfo, kWarning, kError };

void set_log_rank(int64_t rank);  // 0 until set
void open_log_file(const std::filesystem::path& path);  // appends; throws Error when it cannot be opened
void close_log_file();

// The last line on stdout from now on, drawn again after every message; "" removes it. UTF-8, one column a character, shorter
// than the terminal is wide.
void set_status_line(const std::string& text);

void log_line(LogLevel level, const std::string& text);

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace cxxrun
