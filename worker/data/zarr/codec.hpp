// Compression of zarr chunks: blosc (any of its codecs and shuffles), zlib, gzip, zstd or none. Stored bytes are untrusted: their sizes
// are checked before anything is decompressed. Throws DataError naming `place`. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "common/error.hpp"

namespace vla::data {

class ZarrCodec {
 public:
  static constexpr size_t kHeaderBytes = 16;

  ZarrCodec() = default;  // none
  // `compressor` as in .zarray
  ZarrCodec(const nlohmann::ordered_json& compressor, const std::string& place);

  // Whether a file of `stored` bytes that begins with `header` (its first kHeaderBytes or fewer) can hold `size` bytes.
  void check(std::span<const std::byte> header, uintmax_t stored, size_t size, const std::string& place) const;
  // Fills `out`, whose size is the chunk's.
  void decode(std::span<const std::byte> stored, std::span<std::byte> out, const std::string& place) const;
  bool is_blosc() const { return kind_ == Kind::kBlosc; }
  bool can_decode_part() const { return kind_ == Kind::kBlosc || kind_ == Kind::kNone; }  // ChunkFile does

 private:
  enum class Kind : uint8_t { kNone, kBlosc, kZlib, kGzip, kZstd };
  Kind kind_ = Kind::kNone;
};

cxxrun::DataError damaged_chunk(const std::string& place, const std::string& why);

// Blosc with zstd level 3 and byte shuffle, as diffusion policy's writers choose it.
std::string blosc_encode(std::span<const std::byte> chunk, size_t item_size);
nlohmann::ordered_json blosc_description();  // its entry in .zarray

}  // namespace vla::data
