// One open chunk file of which parts are read, without reading or decompressing the rest: blosc compresses in blocks of some hundred
// kB, and a frame is often a hundredth of its chunk. Owns the descriptor. Sizes and places in the file are checked before use. Throws
// DataError naming `place`. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/unique_fd.hpp"
#include "worker/data/zarr/codec.hpp"

namespace vla::data {

class ChunkFile {
 public:
  // `size`: bytes of the decoded chunk. Requires: codec.can_decode_part().
  ChunkFile(const std::string& path, const ZarrCodec& codec, size_t size, std::string place);
  // The bytes at `offset` of the decoded chunk. Requires: they are inside it.
  void read(size_t offset, std::span<std::byte> out);

 private:
  void read_at(uint64_t position, std::span<std::byte> out) const;
  void read_index(size_t file_size);
  void read_blocks(size_t first, size_t last);

  cxxrun::UniqueFd fd_;
  std::string place_;
  size_t raw_begin_ = 0;  // where the chunk's bytes stand as they are; 0 with blocks
  // Of blosc's header; blocks_ is empty where the bytes are not compressed.
  struct Block {
    size_t begin = 0, end = 0;  // in the file
  };
  std::vector<std::byte> header_;
  std::vector<Block> blocks_;
  size_t size_ = 0, block_size_ = 0;  // decoded bytes
  std::vector<std::byte> stored_, decoded_;  // scratch
};

}  // namespace vla::data
