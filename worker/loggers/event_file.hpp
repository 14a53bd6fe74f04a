// One TensorBoard event file (TFRecord frames around Event messages of tensorflow/core/util/event.proto), appended to with one
// write per record, so that a killed run leaves at most its last record torn, which readers skip. Throws Error with the path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/unique_fd.hpp"

namespace vla {

class EventFile {
 public:
  // A new file in `folder`, which is made. Its first records tell readers to forget what other files of the folder say about
  // `first_step` and later ones.
  EventFile(const std::filesystem::path& folder, int64_t first_step);

  void add_scalars(int64_t step, const std::vector<std::pair<std::string, double>>& tags_and_values);
  void add_text(int64_t step, std::string_view tag, std::string_view markdown);

  const std::filesystem::path& path() const { return path_; }

 private:
  void append(const std::string& event);

  std::filesystem::path path_;
  cxxrun::UniqueFd fd_;
};

}  // namespace vla
