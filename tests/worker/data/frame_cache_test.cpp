#include "worker/data/frame_cache.hpp"

#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <thread>

#include "common/error.hpp"
#include "tests/worker/data/support.hpp"

namespace vla::data {
namespace {

const FrameSet kSet{.samples = 40, .frame_bytes = {3000, 10001}};

std::vector<std::byte> frame_of(size_t camera, int64_t sample) {
  std::vector<std::byte> frame(kSet.frame_bytes[camera]);
  for (size_t i = 0; i < frame.size(); ++i) frame[i] = static_cast<std::byte>(i * 7 + camera * 31 + static_cast<size_t>(sample));
  return frame;
}

void write(FrameCache& cache, size_t camera, int64_t sample) { cache.write(camera, sample, frame_of(camera, sample).data()); }

bool gives_back(const FrameCache& cache, size_t camera, int64_t sample) {
  std::vector<std::byte> read(kSet.frame_bytes[camera]);
  if (!cache.read(camera, sample, read.data())) return false;
  EXPECT_EQ(read, frame_of(camera, sample)) << camera << " " << sample;
  return true;
}

int64_t count_held(const FrameCache& cache) {
  int64_t held = 0;
  for (const size_t camera : {0, 1}) {
    for (int64_t sample = 0; sample < kSet.samples; ++sample) held += gives_back(cache, camera, sample) ? 1 : 0;
  }
  return held;
}

class FrameCacheFile : public testing::Test {
 protected:
  std::unique_ptr<FrameCache> open(uint64_t fingerprint = 5) const { return disk_frame_cache(kSet, path_, fingerprint); }
  // Overwrites bytes of the file, counted from its end if `offset` is negative.
  void damage(int64_t offset, const std::string& bytes) const {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(offset, offset < 0 ? std::ios::end : std::ios::beg);
    file << bytes;
  }
  std::string open_and_warn() const {
    testing::internal::CaptureStderr();
    open();
    return testing::internal::GetCapturedStderr();
  }

  TempDir dir_;
  const std::string path_ = dir_.path() + "/below/cache.frames";
};

TEST(MemoryFrameCache, GivesTheSameBytesAndNothingElse) {
  const auto cache = memory_frame_cache(kSet, kSet.total_bytes());
  EXPECT_EQ(count_held(*cache), 0);
  for (const int64_t sample : {0, 39, 7}) {
    write(*cache, 0, sample);
    write(*cache, 1, 39 - sample);
  }
  EXPECT_EQ(count_held(*cache), 6);
  EXPECT_TRUE(cache->holds(1, 32));
  EXPECT_FALSE(cache->holds(0, 32));
  EXPECT_FALSE(cache->is_full());
}

TEST(MemoryFrameCache, TakesFramesUntilItsBudgetIsUsed) {
  const auto cache = memory_frame_cache(kSet, 100'000);
  for (int64_t sample = 0; sample < kSet.samples; ++sample) write(*cache, 1, sample);
  EXPECT_TRUE(cache->is_full());
  const int64_t held = count_held(*cache);
  EXPECT_EQ(held, 100'000 / (4 * 4096)) << "a frame of 10001 bytes touches up to four pages";
  EXPECT_TRUE(gives_back(*cache, 1, held - 1));
  EXPECT_FALSE(gives_back(*cache, 1, held));
}

TEST(MemoryFrameCache, TouchesNoMemoryBeforeFramesCome) {
  // 100 GB: ThreadSanitizer does not always leave more addresses in one piece.
  const FrameSet large{.samples = 100'000, .frame_bytes = {1'000'000}};
  const auto cache = memory_frame_cache(large, 100'000);
  std::vector<std::byte> frame(1'000'000);
  EXPECT_FALSE(cache->read(0, 99'999, frame.data()));
  EXPECT_THROW(memory_frame_cache({.samples = INT64_MAX / 2, .frame_bytes = {1000}}, 1), cxxrun::Error);
}

TEST(MemoryFrameCache, IsFilledAndReadByManyThreads) {
  const auto cache = memory_frame_cache(kSet, kSet.total_bytes());
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int64_t sample = 0; sample < kSet.samples; ++sample) {
          gives_back(*cache, 0, (sample + 20) % kSet.samples);
          write(*cache, 0, sample);
        }
      });
    }
  }
  EXPECT_EQ(count_held(*cache), kSet.samples);
}

TEST_F(FrameCacheFile, GivesTheSameBytesToLaterRunsAndOtherProcesses) {
  const auto first = open();
  EXPECT_EQ(count_held(*first), 0);
  write(*first, 0, 3);
  write(*first, 1, 39);
  EXPECT_EQ(count_held(*open()), 2) << "while the first is open";
  write(*open(), 0, 4);
  EXPECT_EQ(count_held(*first), 3);
  EXPECT_TRUE(first->holds(0, 4));
  EXPECT_FALSE(first->holds(0, 5));
  EXPECT_EQ(open_and_warn(), "");
}

TEST_F(FrameCacheFile, IsSparse) {
  const FrameSet large{.samples = 100'000, .frame_bytes = {1'000'000}};
  disk_frame_cache(large, path_, 5);
  struct stat status = {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_GT(status.st_size, 100'000'000'000);
  EXPECT_LT(status.st_blocks * 512, 1'000'000);
}

TEST_F(FrameCacheFile, IsMadeAnewWhenItIsOfOtherFramesOrBroken) {
  const auto fill = [&] { write(*open(), 0, 3); };
  fill();
  testing::internal::CaptureStderr();
  EXPECT_EQ(count_held(*open(6)), 0) << "of another dataset";
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr(path_ + " is not the frame cache it should be"));

  const std::function<void()> damages[] = {
      [&] { damage(0, "garbage!"); },
      [&] { damage(8, "\x02"); },
      [&] { write_text(path_, "hello"); },
      [&] { std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1); },
      [&] { std::filesystem::resize_file(path_, std::filesystem::file_size(path_) + 1); },
  };
  for (const auto& act : damages) {
    open();
    fill();
    EXPECT_EQ(count_held(*open()), 1);
    act();
    EXPECT_THAT(open_and_warn(), testing::HasSubstr("is made anew"));
    EXPECT_EQ(count_held(*open()), 0);
  }
}

TEST_F(FrameCacheFile, DoesNotGiveAFrameWithAChangedByte) {
  write(*open(), 1, 39);
  damage(-1, "?");
  EXPECT_EQ(count_held(*open()), 0);
  write(*open(), 1, 39);
  EXPECT_EQ(count_held(*open()), 1) << "decoded and written again";
}

// A kill in the middle of writing, wherever it falls, leaves a prefix of the record and holes or old bytes behind it.
TEST_F(FrameCacheFile, DoesNotGiveAFrameThatAKilledProcessHasHalfWritten) {
  write(*open(), 1, 39);
  const std::string whole = cxxrun::read_file(path_);
  const size_t record = 8 + kSet.frame_bytes[1];
  for (size_t written = 0; written < record; written += written < 8 ? 1 : 997) {
    damage(-static_cast<int64_t>(record), whole.substr(whole.size() - record, written) + std::string(record - written, '\0'));
    EXPECT_EQ(count_held(*open()), 0) << written << " bytes";
  }
}

TEST_F(FrameCacheFile, SurvivesKillsAtAnyMoment) {
  int64_t held = 0;
  for (int round = 0; round < 20; ++round) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto cache = open();
      ::write(ready[1], "x", 1);
      for (int64_t i = round * 3;; ++i) write(*cache, static_cast<size_t>(i % 2), i / 2 % kSet.samples);
    }
    char byte;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    ::usleep(static_cast<useconds_t>(round * 50));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(ready[0]);
    ::close(ready[1]);
    held = std::max(held, count_held(*open()));
  }
  EXPECT_GT(held, 0);
}

TEST_F(FrameCacheFile, ThatCannotBeOpenedIsAnErrorWithItsPath) {
  std::filesystem::create_directories(path_);
  EXPECT_THAT(message_of<cxxrun::Error>([&] { open(); }), testing::HasSubstr(path_));
}

TEST(FrameCacheChecksum, ChangesWithEveryByteLengthAndSeed) {
  std::vector<std::byte> bytes(77);
  const uint64_t zero = checksum(bytes.data(), bytes.size(), 1);
  EXPECT_NE(zero, 0U);
  for (std::byte& byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      byte = static_cast<std::byte>(1 << bit);
      EXPECT_NE(checksum(bytes.data(), bytes.size(), 1), zero);
    }
    byte = {};
  }
  EXPECT_NE(checksum(bytes.data(), bytes.size() - 1, 1), zero);
  EXPECT_NE(checksum(bytes.data(), bytes.size(), 2), zero);
}

}  // namespace
}  // namespace vla::data
