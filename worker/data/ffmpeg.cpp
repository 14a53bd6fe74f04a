#include "worker/data/ffmpeg.hpp"

extern "C" {
#include <libavutil/pixdesc.h>
}

#include <cstring>
#include <mutex>

#include "common/error.hpp"

namespace vla::data {

std::string ffmpeg_message(int error) {
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  av_strerror(error, text, sizeof text);
  return text;
}

void silence_ffmpeg() {
  static std::once_flag once;
  std::call_once(once, [] { av_log_set_level(AV_LOG_QUIET); });
}

CodecContext open_decoder(const AVCodecParameters& parameters, const std::string& source) {
  silence_ffmpeg();
  const AVCodec* codec = avcodec_find_decoder(parameters.codec_id);
  if (codec == nullptr)
    throw cxxrun::DataError("{}: this FFmpeg has no decoder for {}", source, avcodec_get_name(parameters.codec_id));
  CodecContext context(avcodec_alloc_context3(codec));
  if (!context) throw std::bad_alloc();
  int status = avcodec_parameters_to_context(context.get(), &parameters);
  context->thread_count = 1;
  context->max_pixels = int64_t{1} << 28;
  if (status >= 0) status = avcodec_open2(context.get(), codec, nullptr);
  if (status < 0) throw cxxrun::DataError("{}: cannot decode {}: {}", source, codec->name, ffmpeg_message(status));
  return context;
}

void RgbConverter::convert(const AVFrame& frame, std::byte* rgb, const std::string& source) {
  const std::vector<int> key = {frame.width, frame.height, frame.format, frame.colorspace, frame.color_range};
  if (key != scaler_key_) {
    const auto format = static_cast<AVPixelFormat>(frame.format);
    const AVPixFmtDescriptor* described = av_pix_fmt_desc_get(format);
    // At 8 bits libswscale repeats chroma, whatever the flag; above, bilinear would smear it over edges.
    const int flags = described != nullptr && described->comp[0].depth > 8 ? SWS_POINT : SWS_BILINEAR;
    scaler_.reset(sws_getContext(frame.width, frame.height, format, frame.width, frame.height, AV_PIX_FMT_RGB24, flags,
                                 nullptr, nullptr, nullptr));
    if (!scaler_)
      throw cxxrun::DataError("{}: no conversion of pixel format {} to RGB", source,
                              described != nullptr ? described->name : "unknown");
    int *source_table, *target_table, source_range, target_range, brightness, contrast, saturation;
    if (sws_getColorspaceDetails(scaler_.get(), &source_table, &source_range, &target_table, &target_range, &brightness,
                                 &contrast, &saturation) >= 0) {
      if (frame.color_range == AVCOL_RANGE_JPEG) source_range = 1;
      const int* matrix = sws_getCoefficients(frame.colorspace);
      sws_setColorspaceDetails(scaler_.get(), matrix, source_range, matrix, target_range, brightness, contrast,
                               saturation);
    }
    scaler_key_ = key;
  }
  const int stride = (frame.width * 3 + 63) / 64 * 64;
  padded_.resize(static_cast<size_t>(stride) * static_cast<size_t>(frame.height) + 64);
  uint8_t* planes[4] = {padded_.data()};
  const int strides[4] = {stride};
  if (sws_scale(scaler_.get(), frame.data, frame.linesize, 0, frame.height, planes, strides) != frame.height) {
    throw cxxrun::DataError("{}: converting a picture to RGB failed", source);
  }
  const auto row_bytes = static_cast<size_t>(frame.width) * 3;
  for (int y = 0; y < frame.height; ++y)
    std::memcpy(rgb + y * row_bytes, padded_.data() + static_cast<size_t>(y) * stride, row_bytes);
}

}  // namespace vla::data
