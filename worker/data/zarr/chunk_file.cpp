#include "worker/data/zarr/chunk_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include <blosc.h>

#include "common/error.hpp"

namespace vla::data {
namespace {

// Blosc's integers are little-endian, as our machines.
int32_t get_int(std::span<const std::byte> bytes, size_t at) {
  int32_t value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
void set_int(std::span<std::byte> bytes, size_t at, size_t value) {
  const auto number = static_cast<int32_t>(value);
  std::memcpy(bytes.data() + at, &number, sizeof number);
}

// Bytes of blosc's header: sizes of the chunk, of a block and of the file.
constexpr size_t kFlags = 2, kSize = 4, kBlockSize = 8, kStoredSize = 12, kHeader = BLOSC_MIN_HEADER_LENGTH;

}  // namespace

ChunkFile::ChunkFile(const std::string& path, const ZarrCodec& codec, size_t size, std::string place)
    : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), place_(std::move(place)), size_(size) {
  struct stat status = {};
  if (fd_.get() < 0 || ::fstat(fd_.get(), &status) != 0)
    throw cxxrun::DataError("{}: cannot be opened: {}", place_, std::strerror(errno));
  const auto file_size = static_cast<size_t>(status.st_size);
  header_.resize(std::min(file_size, kHeader));
  read_at(0, header_);
  codec.check(header_, file_size, size, place_);
  if (codec.is_blosc()) read_index(file_size);
}

void ChunkFile::read_at(uint64_t position, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(position));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      throw cxxrun::DataError("{}: cannot be read: {}", place_, count < 0 ? std::strerror(errno) : "it ends early");
    position += static_cast<uint64_t>(count);
    out = out.subspan(static_cast<size_t>(count));
  }
}

void ChunkFile::read_index(size_t file_size) {
  if ((std::to_integer<int>(header_[kFlags]) & BLOSC_MEMCPYED) != 0) {
    raw_begin_ = kHeader;
    if (file_size != kHeader + size_) throw damaged_chunk(place_, "its size is wrong");
    return;
  }
  const int32_t block_size = get_int(header_, kBlockSize);
  if (block_size < 1 || static_cast<size_t>(block_size) > size_) throw damaged_chunk(place_, "its block size is wrong");
  block_size_ = static_cast<size_t>(block_size);
  const size_t count = (size_ + block_size_ - 1) / block_size_, index_end = kHeader + count * sizeof(int32_t);
  if (index_end > file_size) throw damaged_chunk(place_, "its index is cut off");
  std::vector<std::byte> index(count * sizeof(int32_t));
  read_at(kHeader, index);
  std::vector<size_t> begins(count);
  for (size_t i = 0; i < count; ++i) {
    const int32_t begin = get_int(index, i * sizeof(int32_t));
    if (begin < 0 || static_cast<size_t>(begin) < index_end || static_cast<size_t>(begin) >= file_size)
      throw damaged_chunk(place_, "its index is wrong");
    begins[i] = static_cast<size_t>(begin);
  }
  // Threads that compress write blocks in the order in which they finish.
  std::vector<size_t> sorted = begins;
  std::sort(sorted.begin(), sorted.end());
  for (const size_t begin : begins) {
    const auto next = std::upper_bound(sorted.begin(), sorted.end(), begin);
    blocks_.push_back({begin, next == sorted.end() ? file_size : *next});
  }
}

void ChunkFile::read(size_t offset, std::span<std::byte> out) {
  if (blocks_.empty()) return read_at(raw_begin_ + offset, out);
  size_t first = offset / block_size_;
  const size_t last = (offset + out.size() - 1) / block_size_;
  // Blosc takes no buffer that is shorter than a block, and the chunk's last block may be.
  if (first == last && first + 1 == blocks_.size() && first > 0) --first;
  read_blocks(first, last);
  std::memcpy(out.data(), decoded_.data() + (offset - first * block_size_), out.size());
}

// Into decoded_, by way of a blosc buffer of these blocks alone.
void ChunkFile::read_blocks(size_t first, size_t last) {
  const size_t count = last - first + 1;
  size_t stored_size = kHeader + count * sizeof(int32_t);
  for (size_t i = first; i <= last; ++i) stored_size += blocks_[i].end - blocks_[i].begin;
  decoded_.resize(std::min(size_, (last + 1) * block_size_) - first * block_size_);
  stored_.resize(stored_size);
  std::copy(header_.begin(), header_.end(), stored_.begin());
  set_int(stored_, kSize, decoded_.size());
  set_int(stored_, kStoredSize, stored_size);
  size_t at = kHeader + count * sizeof(int32_t);
  for (size_t i = first; i <= last; ++i) {
    set_int(stored_, kHeader + (i - first) * sizeof(int32_t), at);
    const size_t size = blocks_[i].end - blocks_[i].begin;
    read_at(blocks_[i].begin, std::span(stored_).subspan(at, size));
    at += size;
  }
  if (blosc_decompress_ctx(stored_.data(), decoded_.data(), decoded_.size(), 1) != static_cast<int>(decoded_.size()))
    throw damaged_chunk(place_, "it cannot be decompressed");
}

}  // namespace vla::data
