#include "worker/data/jpeg_decoder.hpp"

#include <csetjmp>
#include <cstdio>

#include <jpeglib.h>

#include "common/error.hpp"

namespace vla::data {
namespace {

constexpr int64_t kLargestPicture = 6'000'000;  // pixels

struct Decompressor {
  jpeg_decompress_struct state = {};
  jpeg_error_mgr errors = {};
  std::jmp_buf jump = {};
  char message[JMSG_LENGTH_MAX] = {};

  Decompressor() {
    state.err = jpeg_std_error(&errors);
    state.client_data = this;
    errors.error_exit = [](j_common_ptr info) {
      note(info);
      std::longjmp(static_cast<Decompressor*>(info->client_data)->jump, 1);
    };
    errors.emit_message = [](j_common_ptr info, int level) {
      if (level >= 0) return;
      if (info->err->num_warnings++ == 0) note(info);
    };
  }
  ~Decompressor() { jpeg_destroy_decompress(&state); }
  Decompressor(const Decompressor&) = delete;

  static void note(j_common_ptr info) {
    info->err->format_message(info, static_cast<Decompressor*>(info->client_data)->message);
  }
};

// libjpeg's errors jump: these functions hold nothing that would have to be destroyed. False: `message` says why.
bool read_header(Decompressor& jpeg, std::span<const std::byte> file) {
  if (setjmp(jpeg.jump) != 0) return false;
  jpeg_create_decompress(&jpeg.state);
  jpeg_mem_src(&jpeg.state, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&jpeg.state, TRUE);
  jpeg.state.out_color_space = JCS_RGB;
  return true;
}

bool read_rows(Decompressor& jpeg, uint8_t* rgb) {
  if (setjmp(jpeg.jump) != 0) return false;
  jpeg_start_decompress(&jpeg.state);
  while (jpeg.state.output_scanline < jpeg.state.output_height) {
    JSAMPROW row = rgb + size_t{jpeg.state.output_scanline} * jpeg.state.output_width * 3;
    jpeg_read_scanlines(&jpeg.state, &row, 1);
  }
  jpeg_finish_decompress(&jpeg.state);
  return jpeg.errors.num_warnings == 0;
}

}  // namespace

JpegDecoder::Picture JpegDecoder::decode(std::span<const std::byte> file, const std::string& source) {
  Decompressor jpeg;
  const auto damaged = [&] { return cxxrun::DataError("{}: damaged JPEG: {}", source, jpeg.message); };
  if (!read_header(jpeg, file)) throw damaged();
  const int64_t height = jpeg.state.image_height, width = jpeg.state.image_width;
  if (height * width > kLargestPicture) {
    throw cxxrun::DataError("{}: a JPEG of {}x{} (height x width), more than {} pixels", source, height, width,
                            kLargestPicture);
  }
  rgb_.resize(static_cast<size_t>(height * width) * 3);
  if (!read_rows(jpeg, rgb_.data())) throw damaged();
  return {height, width, rgb_};
}

}  // namespace vla::data
