#include "worker/data/frame_cache.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>

#include "common/error.hpp"
#include "common/log.hpp"
#include "common/unique_fd.hpp"

namespace vla::data {
namespace {

constexpr size_t kPage = 4096;

// First byte of each camera's frames when each takes `extra` bytes more than its pixels; last entry: the total.
std::vector<uint64_t> camera_offsets(const FrameSet& frames, size_t extra) {
  if (frames.total_bytes() == UINT64_MAX) throw cxxrun::Error("{} samples are too many frames to keep", frames.samples);
  std::vector<uint64_t> offsets = {0};
  for (const size_t bytes : frames.frame_bytes)
    offsets.push_back(offsets.back() + (bytes + extra) * static_cast<uint64_t>(frames.samples));
  return offsets;
}

class Mapping {
 public:
  explicit Mapping(size_t bytes) : bytes_(std::max<size_t>(bytes, 1)) {
    void* data = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) throw cxxrun::errno_error(fmt::format("no memory for {} bytes of frames", bytes_));
    data_ = static_cast<std::byte*>(data);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(data_, bytes_); }
  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  size_t bytes_;
  std::byte* data_ = nullptr;
};

class MemoryFrameCache : public FrameCache {
 public:
  MemoryFrameCache(const FrameSet& frames, uint64_t budget)
      : set_(frames),
        offsets_(camera_offsets(frames, 0)),
        fits_(offsets_.back() <= budget),
        budget_(budget),
        frames_(offsets_.back()),
        states_(frames.frame_bytes.size() * static_cast<size_t>(frames.samples)) {
    // Of frames here and there, huge pages would take far more memory than is counted.
    if (!fits_) ::madvise(frames_.data(), frames_.size(), MADV_NOHUGEPAGE);
  }

  bool read(size_t camera, int64_t sample, std::byte* out) const override {
    if (!holds(camera, sample)) return false;
    std::memcpy(out, place(camera, sample), set_.frame_bytes[camera]);
    return true;
  }

  void write(size_t camera, int64_t sample, const std::byte* frame) override {
    uint8_t empty = kEmpty;
    if (is_full() || !state(camera, sample).compare_exchange_strong(empty, kBeingWritten)) return;
    if (!fits_) {
      const uint64_t pages = set_.frame_bytes[camera] / kPage + 2;
      if (used_.fetch_add(pages * kPage) + pages * kPage > budget_) {
        is_full_ = true;
        return;
      }
    }
    std::memcpy(place(camera, sample), frame, set_.frame_bytes[camera]);
    state(camera, sample).store(kReady, std::memory_order_release);
  }

  bool holds(size_t camera, int64_t sample) const override {
    return state(camera, sample).load(std::memory_order_acquire) == kReady;
  }
  bool is_full() const override { return is_full_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint8_t kEmpty = 0, kBeingWritten = 1, kReady = 2;

  std::byte* place(size_t camera, int64_t sample) const {
    return frames_.data() + offsets_[camera] + static_cast<uint64_t>(sample) * set_.frame_bytes[camera];
  }
  std::atomic_ref<uint8_t> state(size_t camera, int64_t sample) const {
    const size_t index = camera * static_cast<size_t>(set_.samples) + static_cast<size_t>(sample);
    return std::atomic_ref(reinterpret_cast<uint8_t&>(states_.data()[index]));
  }

  const FrameSet set_;
  const std::vector<uint64_t> offsets_;
  const bool fits_;
  const uint64_t budget_;
  std::atomic<uint64_t> used_ = 0;
  std::atomic<bool> is_full_ = false;
  Mapping frames_, states_;
};

// A header, then for each camera and sample a record: checksum and pixels. Records are read and written whole by system calls, not
// through a mapping: an error of the disk is then an error and no SIGBUS, a full disk is known when it happens.
class DiskFrameCache : public FrameCache {
 public:
  DiskFrameCache(const FrameSet& frames, const std::filesystem::path& path, uint64_t fingerprint)
      : set_(frames), path_(path), fingerprint_(fingerprint), offsets_(camera_offsets(frames, sizeof(uint64_t))) {
    std::filesystem::create_directories(path.parent_path());
    file_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file_ || ::flock(file_.get(), LOCK_EX) != 0) throw cxxrun::errno_error("cannot open " + path.string());
    prepare();
    ::flock(file_.get(), LOCK_UN);
  }

  bool read(size_t camera, int64_t sample, std::byte* out) const override {
    const size_t bytes = set_.frame_bytes[camera];
    uint64_t written = 0;
    const iovec parts[] = {{&written, sizeof written}, {out, bytes}};
    const ssize_t count = ::preadv(file_.get(), parts, 2, place(camera, sample));
    return count == static_cast<ssize_t>(sizeof written + bytes) && written != 0 &&
           written == checksum(out, bytes, seed(camera, sample));
  }

  void write(size_t camera, int64_t sample, const std::byte* frame) override {
    if (is_full()) return;
    const size_t bytes = set_.frame_bytes[camera];
    uint64_t sum = checksum(frame, bytes, seed(camera, sample));
    const iovec parts[] = {{&sum, sizeof sum}, {const_cast<std::byte*>(frame), bytes}};
    const ssize_t count = ::pwritev(file_.get(), parts, 2, place(camera, sample));
    if (count == static_cast<ssize_t>(sizeof sum + bytes) || is_full_.exchange(true)) return;
    const std::string reason = count < 0 ? std::strerror(errno) : "no space";
    cxxrun::log_warning("{}: {}; frames that are not in it yet will be decoded every time", path_.string(), reason);
  }

  bool holds(size_t camera, int64_t sample) const override {
    uint64_t written = 0;
    return ::pread(file_.get(), &written, sizeof written, place(camera, sample)) == sizeof written && written != 0;
  }
  bool is_full() const override { return is_full_.load(std::memory_order_relaxed); }

 private:
  struct Header {
    std::array<char, 8> magic = {'c', 'x', 'x', 'r', 'u', 'n', 'f', 'c'};
    uint64_t version = 1, fingerprint = 0, size = 0;
    bool operator==(const Header&) const = default;
  };

  // Requires: the lock.
  void prepare() {
    Header expected, found;
    expected.fingerprint = fingerprint_;
    expected.size = kPage + offsets_.back();
    struct stat status = {};
    if (::fstat(file_.get(), &status) != 0) throw cxxrun::errno_error("cannot open " + path_.string());
    const bool is_whole = static_cast<uint64_t>(status.st_size) == expected.size &&
                          ::pread(file_.get(), &found, sizeof found, 0) == sizeof found;
    if (is_whole && found == expected) return;
    if (status.st_size > 0) {
      cxxrun::log_warning("{} is not the frame cache it should be ({} bytes, expected {}); it is made anew", path_.string(),
                          status.st_size, expected.size);
    }
    // The header comes last: a process killed before it leaves a file that is made anew.
    if (::ftruncate(file_.get(), 0) != 0 || ::ftruncate(file_.get(), static_cast<off_t>(expected.size)) != 0 ||
        ::pwrite(file_.get(), &expected, sizeof expected, 0) != sizeof expected)
      throw cxxrun::errno_error("cannot write " + path_.string());
  }

  off_t place(size_t camera, int64_t sample) const {
    const uint64_t record = sizeof(uint64_t) + set_.frame_bytes[camera];
    return static_cast<off_t>(kPage + offsets_[camera] + static_cast<uint64_t>(sample) * record);
  }
  uint64_t seed(size_t camera, int64_t sample) const {
    return fingerprint_ + static_cast<uint64_t>(place(camera, sample));
  }

  const FrameSet set_;
  const std::filesystem::path path_;
  const uint64_t fingerprint_;
  const std::vector<uint64_t> offsets_;
  std::atomic<bool> is_full_ = false;
  cxxrun::UniqueFd file_;
};

}  // namespace

uint64_t FrameSet::total_bytes() const {
  uint64_t total = 0;
  for (const size_t bytes : frame_bytes) {
    uint64_t of_camera = 0;
    if (__builtin_mul_overflow(bytes + kPage, static_cast<uint64_t>(samples), &of_camera) ||
        __builtin_add_overflow(total, of_camera, &total) || total > INT64_MAX)
      return UINT64_MAX;
    total -= kPage * static_cast<uint64_t>(samples);
  }
  return total;
}

std::unique_ptr<FrameCache> memory_frame_cache(const FrameSet& frames, uint64_t budget) {
  return std::make_unique<MemoryFrameCache>(frames, budget);
}

std::unique_ptr<FrameCache> disk_frame_cache(const FrameSet& frames, const std::filesystem::path& path, uint64_t fingerprint) {
  return std::make_unique<DiskFrameCache>(frames, path, fingerprint);
}

uint64_t checksum(const std::byte* bytes, size_t size, uint64_t seed) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  // Four independent lanes keep the multiplier busy; a lane's step is a bijection, so one changed word always shows.
  std::array<uint64_t, 4> lanes = {seed, seed ^ kOdd, ~seed, size};
  const auto step = [](uint64_t lane, uint64_t word) { return std::rotl((lane ^ word) * kOdd, 29); };
  std::array<uint64_t, 4> words = {};
  for (; size >= sizeof words; bytes += sizeof words, size -= sizeof words) {
    std::memcpy(words.data(), bytes, sizeof words);
    for (size_t i = 0; i < 4; ++i) lanes[i] = step(lanes[i], words[i]);
  }
  words = {};
  if (size > 0) std::memcpy(words.data(), bytes, size);
  uint64_t sum = 0;
  for (size_t i = 0; i < 4; ++i) sum = step(sum, step(lanes[i], words[i]));
  sum ^= sum >> 32;
  return sum == 0 ? 1 : sum;
}

}  // namespace vla::data
