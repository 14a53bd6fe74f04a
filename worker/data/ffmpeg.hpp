// Owners of FFmpeg's objects, its errors as DataError, and the conversion of decoded pictures to RGB. Nothing here is shared
// between threads.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
}

namespace vla::data {

template <auto kFree>
struct FreeThroughPointer {
  template <class T>
  void operator()(T* object) const {
    kFree(&object);
  }
};
struct FreeScaler {
  void operator()(SwsContext* scaler) const { sws_freeContext(scaler); }
};

using FormatContext = std::unique_ptr<AVFormatContext, FreeThroughPointer<avformat_close_input>>;
using CodecContext = std::unique_ptr<AVCodecContext, FreeThroughPointer<avcodec_free_context>>;
using Packet = std::unique_ptr<AVPacket, FreeThroughPointer<av_packet_free>>;
using Frame = std::unique_ptr<AVFrame, FreeThroughPointer<av_frame_free>>;

std::string ffmpeg_message(int error);

// FFmpeg's own lines on stderr would be mixed with ours and name no file; its return codes carry what we report.
void silence_ffmpeg();

// One decoding thread, limits on the size of pictures. Throws DataError naming `source`.
CodecContext open_decoder(const AVCodecParameters& parameters, const std::string& source);

// Converts pictures of any pixel format to RGB24 as torchcodec does on the CPU (libswscale, bilinear, the stream's matrix), and
// with the stream's range also where the pixel format does not tell it.
class RgbConverter {
 public:
  // Writes uint8 [height, width, 3], tightly packed, for the picture as coded. Throws DataError naming `source`.
  void convert(const AVFrame& frame, std::byte* rgb, const std::string& source);

 private:
  std::unique_ptr<SwsContext, FreeScaler> scaler_;
  std::vector<int> scaler_key_;
  std::vector<uint8_t> padded_;  // the SIMD code writes beyond the end of a row
};

}  // namespace vla::data
