// JPEG pictures as OpenCV's imdecode sees them: libjpeg-turbo with its defaults, so every value is equal (FFmpeg's decoder rounds
// otherwise). A picture that libjpeg warns of is damaged. Bytes after the end of the picture are ignored. Throws DataError naming
// `source`. Keeps its memory between calls; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vla::data {

class JpegDecoder {
 public:
  struct Picture {
    int64_t height = 0, width = 0;
    std::span<const uint8_t> rgb = {};  // [height, width, 3], valid until the next call
  };
  Picture decode(std::span<const std::byte> file, const std::string& source);

 private:
  std::vector<uint8_t> rgb_;
};

}  // namespace vla::data
