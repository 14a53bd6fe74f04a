#include "worker/data/inspect/jpeg.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "common/error.hpp"
#include "worker/data/ffmpeg.hpp"

namespace vla::data {
namespace {

constexpr int kQuality = 3;  // 1 is best, 31 worst

void check(int status, const char* what) {
  if (status < 0) throw cxxrun::Error("{} a picture as JPEG failed: {}", what, ffmpeg_message(status));
}

Frame allocate(int height, int width, AVPixelFormat format) {
  Frame frame(av_frame_alloc());
  if (!frame) throw std::bad_alloc();
  frame->height = height;
  frame->width = width;
  frame->format = format;
  frame->color_range = AVCOL_RANGE_JPEG;
  check(av_frame_get_buffer(frame.get(), 0), "holding");
  return frame;
}

Frame scaled(std::span<const std::byte> rgb, int height, int width, int to_height, int to_width) {
  const Frame source = allocate(height, width, AV_PIX_FMT_RGB24);
  const auto row_bytes = static_cast<size_t>(width) * 3;
  for (int y = 0; y < height; ++y)
    std::memcpy(source->data[0] + static_cast<std::ptrdiff_t>(y) * source->linesize[0],
                rgb.data() + static_cast<size_t>(y) * row_bytes, row_bytes);
  Frame target = allocate(to_height, to_width, AV_PIX_FMT_YUVJ444P);
  const std::unique_ptr<SwsContext, FreeScaler> scaler(sws_getContext(
      width, height, AV_PIX_FMT_RGB24, to_width, to_height, AV_PIX_FMT_YUVJ444P, SWS_AREA, nullptr, nullptr, nullptr));
  if (!scaler) throw cxxrun::Error("no scaling of a picture of {}x{} to {}x{}", height, width, to_height, to_width);
  check(sws_scale(scaler.get(), source->data, source->linesize, 0, height, target->data, target->linesize), "scaling");
  return target;
}

}  // namespace

std::string encode_jpeg(std::span<const std::byte> rgb, int64_t height, int64_t width, int64_t largest_width) {
  silence_ffmpeg();
  const int64_t to_width = std::min(width, largest_width);
  const int64_t to_height =
      std::max(int64_t{1}, std::lround(static_cast<double>(height * to_width) / static_cast<double>(width)));
  const Frame frame = scaled(rgb, static_cast<int>(height), static_cast<int>(width), static_cast<int>(to_height),
                             static_cast<int>(to_width));
  frame->quality = kQuality * FF_QP2LAMBDA;

  const AVCodec* codec = avcodec_find_encoder(AV_CODEC_ID_MJPEG);
  if (codec == nullptr) throw cxxrun::Error("this FFmpeg has no JPEG encoder");
  const CodecContext encoder(avcodec_alloc_context3(codec));
  const Packet packet(av_packet_alloc());
  if (!encoder || !packet) throw std::bad_alloc();
  encoder->height = frame->height;
  encoder->width = frame->width;
  encoder->pix_fmt = AV_PIX_FMT_YUVJ444P;
  encoder->color_range = AVCOL_RANGE_JPEG;
  encoder->time_base = {1, 1};
  encoder->thread_count = 1;
  encoder->flags |= AV_CODEC_FLAG_QSCALE;
  encoder->global_quality = frame->quality;
  check(avcodec_open2(encoder.get(), codec, nullptr), "encoding");
  check(avcodec_send_frame(encoder.get(), frame.get()), "encoding");
  check(avcodec_send_frame(encoder.get(), nullptr), "encoding");
  check(avcodec_receive_packet(encoder.get(), packet.get()), "encoding");
  return {reinterpret_cast<const char*>(packet->data), static_cast<size_t>(packet->size)};
}

std::string base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) text += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

}  // namespace vla::data
