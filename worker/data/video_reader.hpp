// One mp4 (AV1, H.264, HEVC …) as an array of its shown frames, RGB, upright. Owns the open file and its decoder, which stays
// where it is: the next frame costs one decoding, the same frame none, any other a seek to the key frame before it. Frames are
// found by presentation time, so edit lists, B-frames and open GOPs cannot shift them. One thread. Fails with DataError naming
// the file and the frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/data/ffmpeg.hpp"

namespace vla::data {

// Presentation times of a file's shown frames in ticks of its time base, ascending. Constant rate: start + frame * step.
struct FrameTimes {
  int64_t count = 0;
  int64_t start = 0, step = 0;
  std::vector<int64_t> ticks;  // all of them where the rate is not constant, else empty
  double seconds_per_tick = 0;

  int64_t ticks_of(int64_t frame) const {
    return ticks.empty() ? start + frame * step : ticks[static_cast<size_t>(frame)];
  }
  double seconds(int64_t frame) const { return static_cast<double>(ticks_of(frame)) * seconds_per_tick; }
  // The frame shown nearest to `seconds`. Requires: count > 0.
  int64_t nearest(double seconds) const;
};

class VideoReader {
 public:
  // Opens the file and reads its index, not its pictures. `times`: of an earlier reader of the same file, to save the work.
  explicit VideoReader(std::string path, std::shared_ptr<const FrameTimes> times = nullptr);

  const std::shared_ptr<const FrameTimes>& times() const { return times_; }
  int64_t height() const { return turned_ ? coded_width() : coded_height(); }
  int64_t width() const { return turned_ ? coded_height() : coded_width(); }
  // "coded 64x48 (height x width), display matrix turns it"
  std::string description() const;

  // Writes uint8 [height, width, 3].
  void read(int64_t frame, std::byte* rgb);
  // About the frames from the key frame that decoding starts from to reach `frame` to the next one.
  std::pair<int64_t, int64_t> decoding_group(int64_t frame) const;
  // Pictures that have left the decoder so far.
  int64_t decoded() const { return decoded_; }

 private:
  int64_t coded_height() const { return stream_->codecpar->height; }
  int64_t coded_width() const { return stream_->codecpar->width; }
  void read_display_matrix();
  void check_file_size() const;
  std::shared_ptr<const FrameTimes> find_times();
  std::vector<int64_t> scan(int64_t limit);

  int key_entry(int64_t ticks) const;
  bool seek(int64_t target);
  bool next_packet();
  bool decode_until(int64_t target);
  void write_upright(const AVFrame& frame, std::byte* rgb);
  [[noreturn]] void fail(const std::string& what) const;

  std::string path_;
  FormatContext format_;
  AVStream* stream_ = nullptr;
  CodecContext decoder_;  // opened by the first read()
  Packet packet_;
  Frame frame_;
  RgbConverter converter_;
  std::shared_ptr<const FrameTimes> times_;

  // The display matrix as x' = matrix_[0] * x + matrix_[2] * y, y' = matrix_[1] * x + matrix_[3] * y, entries -1, 0, 1.
  int matrix_[4] = {1, 0, 0, 1};
  bool turned_ = false;

  int64_t decoded_ = 0;
  int64_t shown_ = -1;  // the frame in rgb_, -1: none
  int64_t position_ = INT64_MIN;  // ticks of the last picture that left the decoder
  int64_t sent_dts_ = INT64_MIN;  // of the last packet that entered it
  int last_error_ = 0;  // of FFmpeg, during the current read()
  bool drained_ = true;  // the decoder must be flushed before it takes packets
  std::vector<std::byte> coded_rgb_, rgb_;
};

}  // namespace vla::data
