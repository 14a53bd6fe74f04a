// Keeps decoded frames by (camera, sample). Two kinds: memory of this process, and a file that the processes of a node and later
// runs share. All functions may be called from any thread; none waits for another. Frames are what they were when written, or not
// there: a file's frames carry checksums, so a killed process, a lost page or a damaged disk costs a decoding, never a wrong picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

namespace vla::data {

// What there is to keep.
struct FrameSet {
  int64_t samples = 0;
  std::vector<size_t> frame_bytes;  // of one frame, by camera

  uint64_t total_bytes() const;  // UINT64_MAX where it does not fit into 63 bits
};

class FrameCache {
 public:
  virtual ~FrameCache() = default;
  // Copies the frame to `out` if it is there. If not, `out` holds anything.
  virtual bool read(size_t camera, int64_t sample, std::byte* out) const = 0;
  // Keeps the frame where there is room and nobody else is doing the same.
  virtual void write(size_t camera, int64_t sample, const std::byte* frame) = 0;
  virtual bool holds(size_t camera, int64_t sample) const = 0;
  virtual bool is_full() const = 0;  // takes no further frames
};

// Takes frames until they fill `budget` bytes. Memory is used as frames come. Throws Error if there is no address space for it.
std::unique_ptr<FrameCache> memory_frame_cache(const FrameSet& frames, uint64_t budget);

// A sparse file that is made, with its folder, if it does not exist. `fingerprint` says what the frames are of: a file of another
// content or size is emptied, with a warning. Throws Error when it cannot be opened; a full disk ends the writing with a warning.
std::unique_ptr<FrameCache> disk_frame_cache(const FrameSet& frames, const std::filesystem::path& path, uint64_t fingerprint);

// 64 bits of any bytes, never 0. Finds accidents, not forgeries.
uint64_t checksum(const std::byte* bytes, size_t size, uint64_t seed);

}  // namespace vla::data
