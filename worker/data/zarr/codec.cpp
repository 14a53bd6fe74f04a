#include "worker/data/zarr/codec.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>

#include <arrow/util/compression.h>
#include <blosc.h>

namespace vla::data {
namespace {

constexpr char kCodec[] = "zstd";
constexpr int kLevel = 3;
constexpr size_t kLargeChunk = 1'000'000;  // bytes; compressed by several threads

std::unique_ptr<arrow::util::Codec> arrow_codec(arrow::Compression::type type, arrow::util::GZipFormat format) {
  arrow::util::GZipCodecOptions gzip;
  gzip.gzip_format = format;
  const bool is_gzip = type == arrow::Compression::GZIP;
  auto codec = arrow::util::Codec::Create(type, is_gzip ? gzip : arrow::util::CodecOptions{});
  if (!codec.ok()) throw cxxrun::Error("cannot decompress zarr chunks: {}", codec.status().message());
  return *std::move(codec);
}

}  // namespace

cxxrun::DataError damaged_chunk(const std::string& place, const std::string& why) {
  return cxxrun::DataError("{}: {}; the file is damaged, copy it again", place, why);
}

ZarrCodec::ZarrCodec(const nlohmann::ordered_json& compressor, const std::string& place) {
  if (compressor.is_null()) return;
  const auto id = compressor.is_object() ? compressor.find("id") : compressor.end();
  const std::string name = id != compressor.end() && id->is_string() ? id->get<std::string>() : "";
  if (name == "blosc") {
    kind_ = Kind::kBlosc;
  } else if (name == "zlib") {
    kind_ = Kind::kZlib;
  } else if (name == "gzip") {
    kind_ = Kind::kGzip;
  } else if (name == "zstd") {
    kind_ = Kind::kZstd;
  } else {
    throw cxxrun::DataError(
        "{}: compressor '{}' is not supported (blosc, zlib, gzip, zstd and none are); write the array again with one "
        "of them",
        place, name);
  }
}

void ZarrCodec::check(std::span<const std::byte> header, uintmax_t stored, size_t size,
                      const std::string& place) const {
  if (kind_ == Kind::kNone && stored != size)
    throw damaged_chunk(place, fmt::format("{} bytes, but a chunk has {}", stored, size));
  if (kind_ != Kind::kBlosc) {
    // Incompressible data grows by less than this in any of the formats.
    if (stored == 0 || stored > size + size / 8 + 1024) throw damaged_chunk(place, fmt::format("{} bytes", stored));
    return;
  }
  size_t decoded = 0;
  if (header.size() < BLOSC_MIN_HEADER_LENGTH || blosc_cbuffer_validate(header.data(), stored, &decoded) < 0)
    throw damaged_chunk(place, fmt::format("{} bytes that are no whole blosc buffer", stored));
  if (decoded != size) throw damaged_chunk(place, fmt::format("it holds {} bytes, but a chunk has {}", decoded, size));
}

void ZarrCodec::decode(std::span<const std::byte> stored, std::span<std::byte> out, const std::string& place) const {
  check(stored.first(std::min(stored.size(), kHeaderBytes)), stored.size(), out.size(), place);
  int64_t decoded = -1;
  if (kind_ == Kind::kNone) {
    std::memcpy(out.data(), stored.data(), out.size());
    return;
  }
  if (kind_ == Kind::kBlosc) {
    decoded = blosc_decompress_ctx(stored.data(), out.data(), out.size(), 1);
  } else {
    const auto codec =
        arrow_codec(kind_ == Kind::kZstd ? arrow::Compression::ZSTD : arrow::Compression::GZIP,
                    kind_ == Kind::kZlib ? arrow::util::GZipFormat::ZLIB : arrow::util::GZipFormat::GZIP);
    const auto result =
        codec->Decompress(static_cast<int64_t>(stored.size()), reinterpret_cast<const uint8_t*>(stored.data()),
                          static_cast<int64_t>(out.size()), reinterpret_cast<uint8_t*>(out.data()));
    if (!result.ok()) throw damaged_chunk(place, "it cannot be decompressed (" + result.status().message() + ")");
    decoded = *result;
  }
  if (decoded != static_cast<int64_t>(out.size())) throw damaged_chunk(place, "it cannot be decompressed");
}

std::string blosc_encode(std::span<const std::byte> chunk, size_t item_size) {
  const int threads =
      chunk.size() < kLargeChunk ? 1 : static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 16U));
  std::string stored(chunk.size() + BLOSC_MAX_OVERHEAD, '\0');
  const int size = blosc_compress_ctx(kLevel, BLOSC_SHUFFLE, item_size, chunk.size(), chunk.data(), stored.data(),
                                      stored.size(), kCodec, 0, threads);
  if (size <= 0)
    throw cxxrun::Error("cannot compress a zarr chunk of {} bytes with blosc and {}", chunk.size(), kCodec);
  stored.resize(static_cast<size_t>(size));
  return stored;
}

nlohmann::ordered_json blosc_description() {
  return {{"blocksize", 0}, {"clevel", kLevel}, {"cname", kCodec}, {"id", "blosc"}, {"shuffle", BLOSC_SHUFFLE}};
}

}  // namespace vla::data
