#include "worker/data/video_reader.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "common/error.hpp"

extern "C" {
#include <libavutil/display.h>
}

namespace vla::data {
namespace {

// Decoding on to a key frame this many packets away costs less than a seek.
constexpr int kNearPackets = 2;
// Reorder buffers hold at most 16 pictures, so the smallest time of this many packets is the file's first.
constexpr int64_t kPacketsForStart = 32;

bool is_shown(const AVPacket& packet) { return (packet.flags & AV_PKT_FLAG_DISCARD) == 0; }

}  // namespace

int64_t FrameTimes::nearest(double seconds) const {
  const double wanted = seconds / seconds_per_tick;
  if (ticks.empty()) {
    const double frame = (wanted - static_cast<double>(start)) / static_cast<double>(step);
    return std::llround(std::clamp(frame, 0.0, static_cast<double>(count - 1)));
  }
  const auto above = std::lower_bound(ticks.begin(), ticks.end(), wanted,
                                      [](int64_t tick, double value) { return static_cast<double>(tick) < value; });
  if (above == ticks.begin()) return 0;
  if (above == ticks.end()) return count - 1;
  const bool lower = wanted - static_cast<double>(above[-1]) <= static_cast<double>(*above) - wanted;
  return above - ticks.begin() - (lower ? 1 : 0);
}

VideoReader::VideoReader(std::string path, std::shared_ptr<const FrameTimes> times)
    : path_(std::move(path)), packet_(av_packet_alloc()), frame_(av_frame_alloc()), times_(std::move(times)) {
  if (!packet_ || !frame_) throw std::bad_alloc();
  silence_ffmpeg();
  // Naming protocol and demuxer: a file of a downloaded dataset must not become a playlist that opens other files.
  AVFormatContext* opened = nullptr;
  const int status = avformat_open_input(&opened, ("file:" + path_).c_str(), av_find_input_format("mov"), nullptr);
  format_.reset(opened);
  if (status < 0) fail(fmt::format("cannot be opened as mp4: {}", ffmpeg_message(status)));
  const int index = av_find_best_stream(format_.get(), AVMEDIA_TYPE_VIDEO, -1, -1, nullptr, 0);
  if (index < 0) fail("has no video stream");
  stream_ = format_->streams[index];
  for (unsigned i = 0; i < format_->nb_streams; ++i) {
    if (static_cast<int>(i) != index) format_->streams[i]->discard = AVDISCARD_ALL;
  }
  if (coded_height() <= 0 || coded_width() <= 0 || stream_->time_base.num <= 0 || stream_->time_base.den <= 0)
    fail("has a broken header");
  read_display_matrix();
  check_file_size();
  if (!times_) times_ = find_times();
}

std::string VideoReader::description() const {
  const bool upright = matrix_[0] == 1 && matrix_[3] == 1;
  return fmt::format("coded {}x{} (height x width), {}", coded_height(), coded_width(),
                     upright ? "no display matrix" : "turned by its display matrix");
}

void VideoReader::read_display_matrix() {
  size_t size = 0;
  const auto* values =
      reinterpret_cast<const int32_t*>(av_stream_get_side_data(stream_, AV_PKT_DATA_DISPLAYMATRIX, &size));
  if (values == nullptr || size < 9 * sizeof(int32_t)) return;
  constexpr int32_t kOne = 1 << 16;
  const int32_t entries[4] = {values[0], values[1], values[3], values[4]};
  for (int i = 0; i < 4; ++i) matrix_[i] = entries[i] / kOne;
  const bool straight = std::abs(matrix_[0]) == 1 && std::abs(matrix_[3]) == 1 && matrix_[1] == 0 && matrix_[2] == 0;
  turned_ = std::abs(matrix_[1]) == 1 && std::abs(matrix_[2]) == 1 && matrix_[0] == 0 && matrix_[3] == 0;
  const bool whole = std::all_of(entries, entries + 4, [](int32_t entry) { return entry % kOne == 0; });
  if (!whole || straight == turned_)
    fail("has a display matrix that is not a quarter turn or a mirror; re-encode it upright");
}

void VideoReader::check_file_size() const {
  const int64_t size = avio_size(format_->pb);
  int64_t needed = 0;
  for (int i = 0; i < avformat_index_get_entries_count(stream_); ++i) {
    const AVIndexEntry* entry = avformat_index_get_entry(stream_, i);
    needed = std::max(needed, entry->pos + entry->size);
  }
  if (size >= 0 && needed > size)
    fail(fmt::format("is truncated: its index needs {} bytes, the file has {}; copy it again", needed, size));
}

// From the container's index where its frames are evenly spaced, which opens long files without reading them; else from all packets.
std::shared_ptr<const FrameTimes> VideoReader::find_times() {
  FrameTimes times;
  times.seconds_per_tick = av_q2d(stream_->time_base);
  const int entries = avformat_index_get_entries_count(stream_);
  bool even = entries > 1 && stream_->nb_frames > 0;
  for (int i = 0; i < entries; ++i) {
    const AVIndexEntry* entry = avformat_index_get_entry(stream_, i);
    if ((entry->flags & AVINDEX_DISCARD_FRAME) == 0) ++times.count;
    if (i == 0) continue;
    const int64_t step = entry->timestamp - avformat_index_get_entry(stream_, i - 1)->timestamp;
    if (i == 1) times.step = step;
    even = even && step == times.step && step > 0;
  }
  if (even) {
    const std::vector<int64_t> first = scan(kPacketsForStart);
    times.start = first.empty() ? 0 : first.front();
    // The latest of them may still miss a neighbour that is stored later.
    for (size_t i = 0; i < first.size() / 2; ++i) even = even && first[i] == times.ticks_of(static_cast<int64_t>(i));
  }
  if (!even) {
    times.ticks = scan(INT64_MAX);
    times.count = static_cast<int64_t>(times.ticks.size());
  }
  if (times.count == 0) fail("has no frames");
  return std::make_shared<const FrameTimes>(std::move(times));
}

std::vector<int64_t> VideoReader::scan(int64_t limit) {
  std::vector<int64_t> ticks;
  while (static_cast<int64_t>(ticks.size()) < limit && next_packet()) {
    if (is_shown(*packet_) && packet_->pts != AV_NOPTS_VALUE) ticks.push_back(packet_->pts);
  }
  drained_ = true;
  std::sort(ticks.begin(), ticks.end());
  return ticks;
}

// Index entry of the key frame that a seek to `ticks` lands on, -1: none.
int VideoReader::key_entry(int64_t ticks) const {
  return av_index_search_timestamp(stream_, ticks, AVSEEK_FLAG_BACKWARD);
}

std::pair<int64_t, int64_t> VideoReader::decoding_group(int64_t frame) const {
  // The index has decoding times, which are before the shown ones by the depth of reordering.
  const AVIndexEntry* first = avformat_index_get_entry(stream_, 0);
  const bool is_plain = first != nullptr && (first->flags & AVINDEX_DISCARD_FRAME) == 0;
  const int64_t delay = !is_plain ? 0 : times_->ticks_of(0) - first->timestamp;
  const int entry = key_entry(times_->ticks_of(frame) - delay);
  if (entry < 0) return {frame, frame + 1};
  const auto first_shown = [&](int64_t ticks) {
    return times_->nearest(static_cast<double>(ticks + delay) * times_->seconds_per_tick);
  };
  const int64_t ticks = avformat_index_get_entry(stream_, entry)->timestamp;
  const int next = av_index_search_timestamp(stream_, ticks + 1, 0);
  const int64_t end = next < 0 ? times_->count : first_shown(avformat_index_get_entry(stream_, next)->timestamp);
  return {std::min(frame, first_shown(ticks)), std::clamp(end, frame + 1, times_->count)};
}

// False at the end of the file.
bool VideoReader::next_packet() {
  for (;;) {
    av_packet_unref(packet_.get());
    const int status = av_read_frame(format_.get(), packet_.get());
    if (status == AVERROR_EOF) return false;
    if (status < 0) fail(fmt::format("cannot be read: {}", ffmpeg_message(status)));
    if (packet_->stream_index == stream_->index) return true;
  }
}

// Leaves the decoder empty and the key frame to start from in packet_. Demuxers seek by decoding time, so the key frame they find
// may be shown after the wanted picture (open GOP); decoding must then start from an earlier one. False: there is none. Asked for a
// key frame by its decoding time, which is before it is shown, the demuxer would go to the one before: hence first for the target.
bool VideoReader::seek(int64_t target) {
  int64_t wanted = target;
  for (int entry = key_entry(wanted); entry >= 0; entry = key_entry(wanted)) {
    if (av_seek_frame(format_.get(), stream_->index, wanted, AVSEEK_FLAG_BACKWARD) < 0 || !next_packet()) return false;
    wanted = avformat_index_get_entry(stream_, entry)->timestamp - 1;
    if (packet_->pts == AV_NOPTS_VALUE || packet_->pts > target) continue;
    avcodec_flush_buffers(decoder_.get());
    drained_ = false;
    position_ = INT64_MIN;
    return true;
  }
  return false;
}

// Feeds the decoder, starting with packet_ where it holds one, until the picture at `target` is in frame_. A packet that cannot be
// decoded is passed over: whether the wanted picture depended on it shows when the picture comes, or does not.
bool VideoReader::decode_until(int64_t target) {
  for (;;) {
    const int status = avcodec_receive_frame(decoder_.get(), frame_.get());
    if (status >= 0) {
      ++decoded_;
      position_ = frame_->best_effort_timestamp;
      if (position_ == target) return true;
      if (position_ > target) return false;
      continue;
    }
    if (status != AVERROR(EAGAIN)) {
      if (status != AVERROR_EOF) last_error_ = status;
      drained_ = true;
      return false;
    }
    const bool has_packet = packet_->data != nullptr || next_packet();
    if (has_packet) sent_dts_ = packet_->dts;
    const int sent = avcodec_send_packet(decoder_.get(), has_packet ? packet_.get() : nullptr);
    av_packet_unref(packet_.get());
    if (sent < 0) last_error_ = sent;
  }
}

void VideoReader::read(int64_t frame, std::byte* rgb) {
  if (frame < 0 || frame >= times_->count)
    fail(fmt::format("has {} frames, frame {} was asked for", times_->count, frame));
  if (frame != shown_) {
    if (!decoder_) decoder_ = open_decoder(*stream_->codecpar, path_);
    const int64_t target = times_->ticks_of(frame);
    const int ahead =
        key_entry(target) - av_index_search_timestamp(stream_, sent_dts_, AVSEEK_FLAG_BACKWARD | AVSEEK_FLAG_ANY);
    const bool go_on = !drained_ && target > position_ && ahead <= kNearPackets;
    shown_ = -1;
    last_error_ = 0;
    const bool found = (go_on && decode_until(target)) || (seek(target) && decode_until(target));
    if (!found || (frame_->flags & AV_FRAME_FLAG_CORRUPT) != 0 || frame_->decode_error_flags != 0) {
      drained_ = true;
      const std::string reason = last_error_ < 0 ? ": " + ffmpeg_message(last_error_) : "";
      fail(fmt::format("frame {} (at {} s) {}{}; copy or encode the file again", frame, times_->seconds(frame),
                       found ? "is damaged" : "cannot be decoded", reason));
    }
    rgb_.resize(static_cast<size_t>(height() * width() * 3));
    write_upright(*frame_, rgb_.data());
    shown_ = frame;
  }
  std::memcpy(rgb, rgb_.data(), rgb_.size());
}

void VideoReader::write_upright(const AVFrame& frame, std::byte* rgb) {
  if (frame.width != coded_width() || frame.height != coded_height()) {
    fail(fmt::format("changes its size from {}x{} to {}x{}", coded_height(), coded_width(), frame.height, frame.width));
  }
  if (matrix_[0] == 1 && matrix_[3] == 1) return converter_.convert(frame, rgb, path_);
  coded_rgb_.resize(rgb_.size());
  converter_.convert(frame, coded_rgb_.data(), path_);
  const int64_t dx = matrix_[0] + matrix_[2] < 0 ? width() - 1 : 0;
  const int64_t dy = matrix_[1] + matrix_[3] < 0 ? height() - 1 : 0;
  for (int64_t y = 0; y < frame.height; ++y) {
    for (int64_t x = 0; x < frame.width; ++x) {
      const int64_t to_x = matrix_[0] * x + matrix_[2] * y + dx;
      const int64_t to_y = matrix_[1] * x + matrix_[3] * y + dy;
      std::memcpy(rgb + (to_y * width() + to_x) * 3, coded_rgb_.data() + (y * frame.width + x) * 3, 3);
    }
  }
}

void VideoReader::fail(const std::string& what) const { throw cxxrun::DataError("{}: {}", path_, what); }

}  // namespace vla::data
