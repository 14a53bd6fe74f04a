// TORCHELASTIC_ERROR_FILE, by which a program says why it failed, in either of torchrun's schemas:
//   {"message": {"message": "Type: text", "extraInfo": {"py_callstack": "…", "timestamp": "…"}}}
//   {"message": "text", "timestamp": …}
// What ranks write is not trusted: anything else, a file that is too large included, counts as no message, since it must not
// hide the failure itself. Writing throws Error.
#pragma once

#include <optional>
#include <string>

namespace cxxrun {

struct ErrorMessage {
  std::string message;  // "" = none
  std::string callstack;  // of Python
  std::optional<int64_t> timestamp;  // Unix seconds, of years with four digits
  std::string document;  // all of it, as JSON on one line
};

ErrorMessage read_error_file(const std::string& path);

// For whoever started cxxrun: the rank's own file, with "errorCode" added where its schema has a place for it.
void copy_error_file(const std::string& from, const std::string& to, int error_code);
void write_error_file(const std::string& path, const std::string& message);

}  // namespace cxxrun
