#include "worker/data/lerobot/json_file.hpp"

#include <filesystem>

#include "common/atomic_file.hpp"
#include "common/error.hpp"

namespace vla::data {
namespace {

constexpr uintmax_t kLargestFile = 256U << 20;

// Python's json writes these words, which JSON does not have.
void replace_non_finite(std::string& text) {
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') in_string = !in_string;
    if (in_string) {
      if (text[i] == '\\') ++i;
      continue;
    }
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (text.compare(i, word.size(), word) == 0) text.replace(i, word.size(), "null");
    }
  }
}

}  // namespace

nlohmann::ordered_json read_json(const std::string& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) throw cxxrun::DataError("cannot open {}: {}", path, error.message());
  if (size > kLargestFile) throw cxxrun::DataError("{}: {} bytes is more than such a file can have", path, size);
  std::string text = cxxrun::read_file(path);
  replace_non_finite(text);
  try {
    return nlohmann::ordered_json::parse(text);
  } catch (const nlohmann::json::exception& problem) {
    throw cxxrun::DataError("{}: not valid JSON ({}); the file is damaged, copy it again", path, problem.what());
  }
}

}  // namespace vla::data
