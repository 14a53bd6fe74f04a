#include "worker/data/lerobot/path_pattern.hpp"

#include <algorithm>
#include <filesystem>

#include "common/error.hpp"

namespace vla::data {

std::string PathPattern::expand(const std::string& video_key, Numbers numbers) const {
  const auto bad = [&](const std::string& why) { return cxxrun::DataError("{}: path '{}' {}", source, text, why); };
  std::string path;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '{') {
      path += text[i];
      continue;
    }
    const size_t close = text.find('}', i);
    if (close == std::string::npos) throw bad("has a '{' without '}'");
    const std::string field = text.substr(i + 1, close - i - 1);
    const std::string name = field.substr(0, field.find(':'));
    const std::string width = field.substr(std::min(field.size(), name.size() + 1));
    const bool plain = width.empty(),
               padded = width.size() == 3 && width[0] == '0' && width[1] >= '0' && width[1] <= '9' && width[2] == 'd';
    const auto number =
        std::find_if(numbers.begin(), numbers.end(), [&](const auto& known) { return known.first == name; });
    if (name == "video_key" && plain) {
      path += video_key;
    } else if (number != numbers.end() && (plain || padded)) {
      if (number->second < 0) throw bad(fmt::format("with {} = {}", name, number->second));
      path += fmt::format("{:0{}d}", number->second, padded ? width[1] - '0' : 0);
    } else {
      throw bad("has an unknown part {" + field + "}");
    }
    i = close;
  }
  const std::filesystem::path normal = std::filesystem::path(path).lexically_normal();
  if (path.empty() || normal.is_absolute() || *normal.begin() == "..")
    throw bad(fmt::format("leads outside the dataset's folder ('{}')", path));
  return root + "/" + normal.string();
}

}  // namespace vla::data
