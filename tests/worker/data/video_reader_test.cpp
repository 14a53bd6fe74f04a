#include "worker/data/video_reader.hpp"

#include "common/error.hpp"
#include "tests/worker/data/support.hpp"

namespace vla::data {
namespace {

constexpr char kHevc[] = "/hard/hevc_backward_seek/data/videos/observation.images.top/chunk-000/file-000.mp4";
constexpr char kTrimmed[] = "/hard/trimmed_by_edit_list/data/videos/observation.images.top/chunk-000/file-000.mp4";
constexpr char kH264[] = "/lerobot_h264/videos/observation.image/chunk-000/file-000.mp4";
constexpr char kAv1[] = "/metaworld_demo/videos/observation.image/chunk-000/file-000.mp4";

// Presentation times of the shown packets, ascending.
std::vector<int64_t> packet_times(const std::string& path) {
  AVFormatContext* opened = nullptr;
  EXPECT_GE(avformat_open_input(&opened, path.c_str(), nullptr, nullptr), 0);
  const FormatContext format(opened);
  const Packet packet(av_packet_alloc());
  std::vector<int64_t> times;
  for (; av_read_frame(format.get(), packet.get()) >= 0; av_packet_unref(packet.get())) {
    if ((packet->flags & AV_PKT_FLAG_DISCARD) == 0) times.push_back(packet->pts);
  }
  std::sort(times.begin(), times.end());
  return times;
}

// Copies the first `count` packets of the video with their times changed by `retime`.
void remux(const std::string& from, const std::string& to, int count, const char* flags, int64_t (*retime)(int64_t)) {
  AVFormatContext *opened = nullptr, *created = nullptr;
  ASSERT_GE(avformat_open_input(&opened, from.c_str(), nullptr, nullptr), 0);
  const FormatContext input(opened);
  ASSERT_GE(avformat_alloc_output_context2(&created, nullptr, "mp4", to.c_str()), 0);
  AVStream* stream = avformat_new_stream(created, nullptr);
  avcodec_parameters_copy(stream->codecpar, input->streams[0]->codecpar);
  stream->codecpar->codec_tag = 0;
  stream->time_base = input->streams[0]->time_base;
  ASSERT_GE(avio_open(&created->pb, to.c_str(), AVIO_FLAG_WRITE), 0);
  AVDictionary* options = nullptr;
  av_dict_set(&options, "movflags", flags, 0);  // null removes the option
  ASSERT_GE(avformat_write_header(created, &options), 0);
  av_dict_free(&options);
  const Packet packet(av_packet_alloc());
  for (int i = 0; i < count && av_read_frame(input.get(), packet.get()) >= 0; ++i) {
    packet->pts = retime(packet->pts);
    packet->dts = retime(packet->dts);
    packet->duration = 0;
    av_packet_rescale_ts(packet.get(), input->streams[0]->time_base, stream->time_base);
    packet->stream_index = 0;
    ASSERT_GE(av_interleaved_write_frame(created, packet.get()), 0);
  }
  av_write_trailer(created);
  avio_closep(&created->pb);
  avformat_free_context(created);
}

TEST(FrameTimes, NearestRoundsAndStaysInside) {
  const FrameTimes even{.count = 10, .start = 0, .step = 128, .ticks = {}, .seconds_per_tick = 1.0 / 1280};
  EXPECT_EQ(even.nearest(0.3), 3);
  EXPECT_EQ(even.nearest(0.34), 3);
  EXPECT_EQ(even.nearest(-5), 0);
  EXPECT_EQ(even.nearest(5), 9);
  const FrameTimes uneven{.count = 3, .start = 0, .step = 0, .ticks = {0, 33, 67}, .seconds_per_tick = 0.001};
  EXPECT_EQ(uneven.nearest(0.040), 1);
  EXPECT_EQ(uneven.nearest(0.060), 2);
  EXPECT_EQ(uneven.nearest(9), 2);
  EXPECT_EQ(uneven.nearest(-1), 0);
}

// The container's index and the packets must tell the same times, edit lists and reordering included.
TEST(VideoReader, TimesFromTheIndexEqualThoseOfThePackets) {
  for (const char* file : {kHevc, kTrimmed, kH264}) {
    VideoReader reader(kData + file);
    const FrameTimes& times = *reader.times();
    EXPECT_TRUE(times.ticks.empty()) << file << ": its frames are evenly spaced";
    EXPECT_EQ(times.seconds(0), 0) << file;
    const std::vector<int64_t> expected = packet_times(kData + file);
    ASSERT_EQ(static_cast<int64_t>(expected.size()), times.count) << file;
    for (int64_t i = 0; i < times.count; ++i) ASSERT_EQ(expected[static_cast<size_t>(i)], times.ticks_of(i)) << file;
  }
}

TEST(VideoReader, EveryFrameIsTheSameFromEveryDirection) {
  for (const char* file : {kHevc, kTrimmed}) {
    VideoReader reader(kData + file);
    const int64_t count = reader.times()->count;
    const auto bytes = static_cast<size_t>(reader.height() * reader.width() * 3);
    std::vector<std::vector<std::byte>> frames;
    for (int64_t i = 0; i < count; ++i) reader.read(i, frames.emplace_back(bytes).data());
    std::vector<std::byte> again(bytes);
    for (int64_t from = 0; from < count; from += 3) {
      for (int64_t to = 0; to < count; ++to) {
        reader.read(from, again.data());
        reader.read(to, again.data());
        ASSERT_EQ(again, frames[static_cast<size_t>(to)]) << file << ": " << to << " after " << from;
      }
    }
    EXPECT_NE(frames[0], frames[5]);
    EXPECT_THAT(message_of<cxxrun::DataError>([&] { reader.read(count, again.data()); }),
                testing::HasSubstr("has " + std::to_string(count) + " frames"));
  }
}

TEST(VideoReader, FragmentedAndUnevenFilesShowTheSameFrames) {
  struct Variant {
    const char* flags;
    int64_t (*retime)(int64_t);
  };
  const Variant variants[] = {{"frag_keyframe", [](int64_t t) { return t; }},
                              {nullptr, [](int64_t t) { return 2 * t + (t / 128 % 2 != 0 ? 50 : 0); }}};
  const TempDir dir;
  VideoReader original(kData + kH264);
  std::vector<std::byte> expected(128 * 128 * 3), rgb(128 * 128 * 3);
  for (const Variant& variant : variants) {
    SCOPED_TRACE(variant.flags == nullptr ? "uneven" : variant.flags);
    const std::string path = dir.path() + "/copy.mp4";
    remux(kData + kH264, path, 60, variant.flags, variant.retime);
    VideoReader reader(path);
    ASSERT_EQ(reader.times()->count, 60);
    EXPECT_EQ(reader.times()->ticks.size(), variant.flags == nullptr ? 60U : 0U);
    for (const int64_t frame : {0, 1, 2, 59, 30, 31, 7, 8, 58, 3}) {
      original.read(frame, expected.data());
      reader.read(frame, rgb.data());
      EXPECT_EQ(rgb, expected) << frame;
    }
  }
}

TEST(VideoReader, ReadsInOrderWithoutDecodingTwice) {
  VideoReader reader(kData + kH264);
  std::vector<std::byte> rgb(128 * 128 * 3);
  for (int64_t i = 0; i < 100; ++i) {
    reader.read(i, rgb.data());
    reader.read(i, rgb.data());
  }
  EXPECT_LE(reader.decoded(), 102) << "100 frames, each asked for twice";
}

TEST(VideoReader, GroupsFramesByTheirKeyFrames) {
  for (const char* file : {kH264, kAv1}) {  // a key frame every second frame
    VideoReader reader(kData + file);
    std::vector<std::byte> frame(static_cast<size_t>(reader.height() * reader.width() * 3));
    reader.read(20, frame.data());
    for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(reader.decoding_group(i), std::pair(i / 2 * 2, i / 2 * 2 + 2)) << file << " " << i;
    const int64_t last = reader.times()->count - 1;
    EXPECT_EQ(reader.decoding_group(last).second, last + 1);
  }
}

TEST(VideoReader, NamesADamagedFile) {
  const TempDir dir;
  const std::string whole = cxxrun::read_file(kData + kH264), path = dir.path() + "/cut.mp4";
  EXPECT_THAT(message_of<cxxrun::DataError>([&] { VideoReader reader(path); }),
              testing::AllOf(testing::HasSubstr(path), testing::HasSubstr("No such file")));
  for (const size_t size : {size_t{0}, size_t{20}, whole.size() / 2, whole.size() - 1}) {
    write_text(path, whole.substr(0, size));
    EXPECT_THAT(message_of<cxxrun::DataError>([&] { VideoReader reader(path); }), testing::HasSubstr(path)) << size;
  }
  write_text(path, "#EXTM3U\n#EXTINF:1,\n/etc/passwd\n");
  EXPECT_THAT(message_of<cxxrun::DataError>([&] { VideoReader reader(path); }), testing::HasSubstr(path));
  // A hole in the pictures, under an intact index.
  std::string holed = whole;
  holed.replace(whole.size() / 2, 200000, 200000, '\0');
  write_text(path, holed);
  VideoReader reader(path);
  std::vector<std::byte> rgb(128 * 128 * 3);
  const std::string message = message_of<cxxrun::DataError>([&] {
    for (int64_t i = 0; i < reader.times()->count; ++i) reader.read(i, rgb.data());
  });
  EXPECT_THAT(message, testing::AllOf(testing::HasSubstr(path), testing::HasSubstr("frame ")));
  reader.read(0, rgb.data());
}

}  // namespace
}  // namespace vla::data
