// Pictures for people: RGB made smaller and encoded as JPEG by FFmpeg.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace vla::data {

// `rgb`: uint8 [height, width, 3]. At most `largest_width` wide, never enlarged. Throws Error when FFmpeg cannot.
std::string encode_jpeg(std::span<const std::byte> rgb, int64_t height, int64_t width, int64_t largest_width);

std::string base64(std::string_view bytes);

}  // namespace vla::data
