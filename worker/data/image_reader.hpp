// Decodes still pictures (PNG, JPEG) held in memory. Keeps its decoder between calls. One thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "worker/data/ffmpeg.hpp"

namespace vla::data {

class ImageReader {
 public:
  // Writes uint8 [height, width, 3], RGB. Throws DataError naming `source` for a broken picture or one of another size.
  void read(std::span<const std::byte> file, int64_t height, int64_t width, std::byte* rgb, const std::string& source);

 private:
  CodecContext decoder_;
  Packet packet_;
  Frame frame_;
  RgbConverter converter_;
};

}  // namespace vla::data
