// tests/data/goldens/dp_raw: two recordings and the zarr folder that RoboTwin's own process_data.py (branch stable_2.0, 13c3c47ff431;
// zarr 2.18.7) makes of them.
#include "worker/data/zarr/robotwin.hpp"

#include <optional>

#include "common/error.hpp"
#include "tests/worker/data/support.hpp"
#include "worker/data/hdf5/hdf5_file.hpp"
#include "worker/data/zarr/replay_buffer.hpp"

namespace vla::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kGolden = kData + "/goldens/dp_raw";

// What a recording made by the test holds.
struct Contents {
  std::vector<std::string> pictures = {};
  std::optional<int64_t> rows = {};  // of joints; as many as pictures if not given
  int64_t width = 14;
  hid_t joint_type = H5T_IEEE_F64LE;  // in the file
  std::string camera = "head_camera";
  bool variable_strings = false, flat_joints = false;
};

void write_recording(const std::string& path, const Contents& contents) {
  const Hdf5Id file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  const Hdf5Id links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links.get(), 1);
  const auto write = [&](const std::string& name, const std::vector<hsize_t>& shape, hid_t type, hid_t memory,
                         const void* values) {
    const Hdf5Id space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose);
    const Hdf5Id dataset(H5Dcreate2(file.get(), name.c_str(), type, space.get(), links.get(), H5P_DEFAULT, H5P_DEFAULT),
                         H5Dclose);
    ASSERT_GE(H5Dwrite(dataset.get(), memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), 0) << name;
  };
  const auto rows = static_cast<hsize_t>(contents.rows.value_or(static_cast<int64_t>(contents.pictures.size())));
  std::vector<double> joints;
  for (size_t i = 0; i < rows * static_cast<size_t>(contents.width); ++i) joints.push_back(static_cast<double>(i) / 8);
  const std::vector<hsize_t> flat = {joints.size()}, table = {rows, static_cast<hsize_t>(contents.width)};
  write("joint_action/vector", contents.flat_joints ? flat : table, contents.joint_type, H5T_NATIVE_DOUBLE,
        joints.data());
  const std::string name = "observation/" + contents.camera + "/rgb";
  const Hdf5Id type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  if (contents.variable_strings) {
    H5Tset_size(type.get(), H5T_VARIABLE);
    const std::vector<const char*> values(contents.pictures.size(), "x");
    write(name, {values.size()}, type.get(), type.get(), values.data());
    return;
  }
  size_t size = 1;
  for (const std::string& picture : contents.pictures) size = std::max(size, picture.size());
  H5Tset_size(type.get(), size);
  std::string padded;
  for (std::string picture : contents.pictures) {
    picture.resize(size);
    padded += picture;
  }
  write(name, {contents.pictures.size()}, type.get(), type.get(), padded.data());
}

class Robotwin : public testing::Test {
 protected:
  Robotwin() {
    std::filesystem::create_directory(raw_);
    const Hdf5File file(kGolden + "/episode0.hdf5");
    const Hdf5Dataset pictures = file.dataset("observation/head_camera/rgb");
    for (int64_t row = 0; row < 4; ++row) pictures_.push_back(pictures.read_string(row));
  }
  std::string episode(int number) const { return raw_ + "/episode" + std::to_string(number) + ".hdf5"; }
  // Two recordings, the second one of `contents`.
  std::string error_of(const Contents& contents, const RobotwinOptions& options = {}) const {
    write_recording(episode(0), {.pictures = pictures_});
    write_recording(episode(1), contents);
    return error(options);
  }
  std::string error(const RobotwinOptions& options = {}) const {
    const std::string message = message_of<cxxrun::DataError>([&] { convert_robotwin(raw_, output_, options); });
    EXPECT_FALSE(std::filesystem::exists(output_)) << message;
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}), 1) << "only the recordings";
    return message;
  }

  TempDir dir_;
  const std::string raw_ = dir_.path() + "/raw", output_ = dir_.path() + "/out.zarr";
  std::vector<std::string> pictures_;
};

TEST_F(Robotwin, MakesTheReplayBufferThatRobotwinMakes) {
  const RobotwinResult result = convert_robotwin(kGolden, output_, {});
  EXPECT_EQ(result.episodes, 2);
  EXPECT_EQ(result.frames, 17);
  EXPECT_EQ(result.width, 14);
  const std::string expected = kGolden + "/expected.zarr";
  for (const std::string array : {"data/state", "data/action", "data/head_camera", "meta/episode_ends"}) {
    EXPECT_EQ(read_json_file(output_ + "/" + array + "/.zarray"), read_json_file(expected + "/" + array + "/.zarray"));
    EXPECT_EQ(ZarrArray(output_ + "/" + array, array).read_block(0),
              ZarrArray(expected + "/" + array, array).read_block(0))
        << array;
  }
  for (const std::string group : {"", "/data", "/meta"})
    EXPECT_EQ(read_json_file(output_ + group + "/.zgroup"), read_json_file(expected + group + "/.zgroup"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(output_ + "/data"), {}), 4);
}

TEST_F(Robotwin, TheResultDoesNotDependOnTheThreads) {
  convert_robotwin(kGolden, output_, {.threads = 1});
  convert_robotwin(kGolden, output_ + "7", {.threads = 7});
  const auto pictures = [](const std::string& root) {
    return ZarrArray(root + "/data/head_camera", "data/head_camera").read_block(0);
  };
  EXPECT_EQ(pictures(output_), pictures(output_ + "7"));
}

TEST_F(Robotwin, CanBeTrainedOn) {
  convert_robotwin(kGolden, output_, {});
  const auto dataset = open_dataset({.root = output_});
  EXPECT_EQ(dataset->size(), 17);
  EXPECT_EQ(dataset->episodes().size(), 2U);
  const SampleRequest request = {{"observation.images.head_camera", {}}, {"observation.state", {}}, {"action", {}}};
  const SampleLayout layout = dataset->layout(request);
  const auto reader = dataset->open_reader(request);
  EXPECT_EQ(Sample(layout, *reader, 3).get<float>("action"),
            Sample(layout, *reader, 4).get<float>("observation.state"));
  EXPECT_NE(Sample(layout, *reader, 10).get<float>("action"),
            Sample(layout, *reader, 11).get<float>("observation.state"))
      << "an episode's last action is in no state";
}

TEST_F(Robotwin, JointsAreOfAnyWidthAndPrecision) {
  for (const int64_t width : {14, 16}) {
    for (const hid_t type : {H5T_IEEE_F32LE, H5T_IEEE_F64LE, H5T_IEEE_F32BE}) {
      write_recording(episode(0), {.pictures = pictures_, .width = width, .joint_type = type});
      EXPECT_EQ(convert_robotwin(raw_, output_, {.overwrite = true}).width, width);
      const ReplayBuffer buffer(output_);
      EXPECT_THAT(buffer.ends, ElementsAre(3));
      for (const ZarrArray& array : buffer.arrays) {
        if (ReplayBuffer::is_image(array)) continue;
        const std::vector<std::byte> items = array.read_block(0);
        float value = 0;
        std::memcpy(&value, items.data() + array.row_bytes(), sizeof(value));  // of the second frame
        EXPECT_EQ(value, static_cast<float>(array.name() == "data/state" ? width : 2 * width) / 8) << array.name();
      }
    }
  }
}

TEST_F(Robotwin, TakesTheCameraAndTheEpisodesAskedFor) {
  write_recording(episode(0), {.pictures = pictures_, .camera = "left_camera"});
  write_recording(episode(1), {.pictures = pictures_, .camera = "left_camera"});
  write_recording(episode(7), {.pictures = {}});
  const RobotwinResult result = convert_robotwin(raw_ + "/", output_ + "/", {.episodes = 2, .camera = "left_camera"});
  EXPECT_EQ(result.episodes, 2);
  EXPECT_TRUE(std::filesystem::exists(output_ + "/data/left_camera/0.0.0.0"));
}

TEST_F(Robotwin, MissingRecordingsAreNamed) {
  EXPECT_THAT(error(), AllOf(HasSubstr("no episode0.hdf5"), HasSubstr("data/TASK/SETTING/data")));
  for (const int number : {0, 1, 3}) write_recording(episode(number), {.pictures = pictures_});
  write_text(raw_ + "/episode02.hdf5", "not one of them");
  EXPECT_THAT(error(), AllOf(HasSubstr("no episode2.hdf5"), HasSubstr("up to 3"), HasSubstr("--episodes 2")));
  EXPECT_THAT(error({.episodes = 4}), AllOf(HasSubstr("no episode2.hdf5"), HasSubstr("4 episodes are asked for")));
  EXPECT_THAT(message_of<cxxrun::UsageError>([&] { convert_robotwin(raw_ + "/x", output_, {}); }),
              HasSubstr("is not a folder"));
}

TEST_F(Robotwin, RecordingsThatDoNotFitAreNamed) {
  const std::vector<std::string> one = {pictures_[0]};
  EXPECT_THAT(error_of({.pictures = pictures_, .width = 16}),
              AllOf(HasSubstr(episode(1) + ": /joint_action/vector has 16 joints"), HasSubstr("episode0.hdf5 has 14")));
  EXPECT_THAT(error_of({.pictures = one}), AllOf(HasSubstr("has 1 rows"), HasSubstr("two or more")));
  EXPECT_THAT(error_of({.pictures = pictures_, .rows = 3}),
              AllOf(HasSubstr("vector has 3 rows"), HasSubstr("/observation/head_camera/rgb has 4")));
  EXPECT_THAT(error_of({.pictures = pictures_, .flat_joints = true}), HasSubstr("[steps, joints]"));
  EXPECT_THAT(error_of({.pictures = pictures_, .joint_type = H5T_STD_I32LE}), HasSubstr("floating-point"));
  EXPECT_THAT(error_of({.pictures = pictures_, .variable_strings = true}), HasSubstr("strings of fixed length"));
  EXPECT_THAT(error_of({.pictures = pictures_, .camera = "front_camera"}),
              AllOf(HasSubstr("/observation has no 'head_camera', but [front_camera]"), HasSubstr("--camera")));
}

TEST_F(Robotwin, DamagedPicturesAreNamed) {
  const auto with = [&](std::string picture) {
    std::vector<std::string> pictures = pictures_;
    pictures[2] = std::move(picture);
    return error_of({.pictures = pictures});
  };
  const auto at_row = AllOf(HasSubstr(episode(1) + ": /observation/head_camera/rgb, row 2: damaged JPEG"));
  EXPECT_THAT(with(pictures_[2].substr(0, pictures_[2].size() / 2)), at_row);
  EXPECT_THAT(with("not a JPEG"), AllOf(at_row, HasSubstr("Not a JPEG file")));
  EXPECT_THAT(with(""), at_row);
  std::string tall = pictures_[2], huge = tall;
  const size_t size = tall.find("\xff\xc0") + 5;  // height and width
  tall[size + 1] = 64;
  EXPECT_THAT(with(tall), testing::AnyOf(HasSubstr("the picture is 64x48"), at_row));
  huge.replace(size, 4, "\x7f\xff\x7f\xff");
  EXPECT_THAT(with(huge), HasSubstr("32767x32767"));
}

TEST_F(Robotwin, DamagedFilesAreNamed) {
  const std::string whole = cxxrun::read_file(kGolden + "/episode0.hdf5");
  for (const size_t size : {size_t{0}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    write_text(episode(0), whole.substr(0, size));
    EXPECT_THAT(error(), AllOf(HasSubstr(episode(0)), HasSubstr("cannot be read: "))) << size;
  }
}

TEST_F(Robotwin, NothingOutsideTheFileIsRead) {
  write_recording(raw_ + "/other.hdf5", {.pictures = pictures_});
  {
    const Hdf5Id file(H5Fcreate(episode(0).c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
    const Hdf5Id group(H5Gcreate2(file.get(), "joint_action", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
    H5Lcreate_external("other.hdf5", "/joint_action/vector", group.get(), "vector", H5P_DEFAULT, H5P_DEFAULT);
    const Hdf5Id external(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_external(external.get(), (raw_ + "/other.hdf5").c_str(), 0, 8);
    const hsize_t size = 1;
    const Hdf5Id space(H5Screate_simple(1, &size, nullptr), H5Sclose);
    const Hdf5Id dataset(
        H5Dcreate2(file.get(), "outside", H5T_IEEE_F64LE, space.get(), H5P_DEFAULT, external.get(), H5P_DEFAULT),
        H5Dclose);
  }
  EXPECT_THAT(error(), HasSubstr("/joint_action/vector cannot be read"));
  EXPECT_THAT(message_of<cxxrun::DataError>([&] { Hdf5File(episode(0)).dataset("outside"); }),
              HasSubstr("its data in other files"));
}

TEST_F(Robotwin, AnExistingResultIsReplacedOnlyWhenAskedAndOnlyBySuccess) {
  convert_robotwin(kGolden, output_, {});
  EXPECT_THAT(message_of<cxxrun::UsageError>([&] { convert_robotwin(kGolden, output_, {}); }),
              HasSubstr(output_ + " exists"));
  write_recording(episode(0), {.pictures = {pictures_[0], "damaged", pictures_[1]}});
  EXPECT_THROW(convert_robotwin(raw_, output_, {.overwrite = true}), cxxrun::DataError);
  EXPECT_THAT(ReplayBuffer(output_).ends, ElementsAre(11, 17)) << "as it was";
  convert_robotwin(kGolden, output_, {.episodes = 1, .overwrite = true});
  EXPECT_THAT(ReplayBuffer(output_).ends, ElementsAre(11));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}), 2) << "recordings and result";
  EXPECT_THAT(message_of<cxxrun::UsageError>([&] { convert_robotwin(kGolden, raw_, {.overwrite = true}); }),
              HasSubstr("is not a zarr folder"));
  EXPECT_TRUE(std::filesystem::exists(episode(0)));
}

}  // namespace
}  // namespace vla::data
