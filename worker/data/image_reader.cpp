#include "worker/data/image_reader.hpp"

#include <cstring>
#include <new>

#include "common/error.hpp"

namespace vla::data {
namespace {

bool starts_with(std::span<const std::byte> file, std::string_view magic) {
  return file.size() > magic.size() && std::memcmp(file.data(), magic.data(), magic.size()) == 0;
}

AVCodecID codec_of(std::span<const std::byte> file, const std::string& source) {
  if (starts_with(file, "\x89PNG")) return AV_CODEC_ID_PNG;
  if (starts_with(file, "\xff\xd8\xff")) return AV_CODEC_ID_MJPEG;
  throw cxxrun::DataError("{}: {} bytes that are neither PNG nor JPEG", source, file.size());
}

}  // namespace

void ImageReader::read(std::span<const std::byte> file, int64_t height, int64_t width, std::byte* rgb,
                       const std::string& source) {
  const AVCodecID codec = codec_of(file, source);
  if (!decoder_ || decoder_->codec_id != codec) {
    AVCodecParameters parameters = {};
    parameters.codec_type = AVMEDIA_TYPE_VIDEO;
    parameters.codec_id = codec;
    parameters.format = AV_PIX_FMT_NONE;
    decoder_ = open_decoder(parameters, source);
    decoder_->err_recognition = AV_EF_CRCCHECK | AV_EF_EXPLODE;
    frame_.reset(av_frame_alloc());
    packet_.reset(av_packet_alloc());
  }
  if (!frame_ || !packet_) throw std::bad_alloc();
  // Copied, because decoders read beyond the end and need zeros there.
  int status = av_new_packet(packet_.get(), static_cast<int>(file.size()));
  if (status >= 0) {
    std::memcpy(packet_->data, file.data(), file.size());
    packet_->flags |= AV_PKT_FLAG_KEY;  // else the PNG decoder adds the picture to the one before
    status = avcodec_send_packet(decoder_.get(), packet_.get());
    av_packet_unref(packet_.get());
  }
  if (status >= 0) status = avcodec_receive_frame(decoder_.get(), frame_.get());
  if (status < 0) {
    decoder_.reset();
    throw cxxrun::DataError("{}: broken picture: {}", source, ffmpeg_message(status));
  }
  if (frame_->height != height || frame_->width != width) {
    throw cxxrun::DataError("{}: the picture is {}x{} (height x width), the dataset declares {}x{}", source,
                            frame_->height, frame_->width, height, width);
  }
  converter_.convert(*frame_, rgb, source);
}

}  // namespace vla::data
