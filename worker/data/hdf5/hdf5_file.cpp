#include "worker/data/hdf5/hdf5_file.hpp"

#include <algorithm>
#include <limits>

#include "common/error.hpp"

namespace vla::data {
namespace {

constexpr size_t kLargestRead = size_t{1} << 30;  // bytes

// What libhdf5 says of the call that failed last: the deepest of its reasons.
std::string hdf5_reason() {
  std::string reason;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned level, const H5E_error2_t* error, void* result) -> herr_t {
        if (level == 0 && error->desc != nullptr) *static_cast<std::string*>(result) = error->desc;
        return 0;
      },
      &reason);
  return reason.empty() ? "no reason given" : reason;
}

cxxrun::DataError unreadable(const std::string& place) {
  return cxxrun::DataError("{} cannot be read: {}; copy or record it again", place, hdf5_reason());
}

Hdf5Id opened_file(const std::string& path) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // it prints to stderr otherwise
  const Hdf5Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // Some file systems of clusters have no locks.
  if (!access || H5Pset_file_locking(access.get(), true, true) < 0) throw unreadable(path);
  Hdf5Id file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (!file) throw unreadable(path);
  return file;
}

herr_t refuse_link(const char*, const char*, const char*, const char*, unsigned*, hid_t, void*) { return -1; }

// A file must not make us read other ones.
bool is_stored_elsewhere(hid_t dataset) {
  const Hdf5Id creation(H5Dget_create_plist(dataset), H5Pclose);
  return !creation || H5Pget_layout(creation.get()) == H5D_VIRTUAL || H5Pget_external_count(creation.get()) != 0;
}

}  // namespace

Hdf5Dataset::Hdf5Dataset(Hdf5Id dataset, std::string place)
    : dataset_(std::move(dataset)),
      type_(H5Dget_type(dataset_.get()), H5Tclose),
      space_(H5Dget_space(dataset_.get()), H5Sclose),
      place_(std::move(place)) {
  hsize_t sizes[H5S_MAX_RANK] = {};
  const int rank = type_ && space_ ? H5Sget_simple_extent_dims(space_.get(), sizes, nullptr) : -1;
  if (rank < 0) throw unreadable(place_);
  if (is_stored_elsewhere(dataset_.get()))
    throw cxxrun::DataError("{} has its data in other files; copy them into one with h5repack", place_);
  for (int axis = 0; axis < rank; ++axis) {
    if (sizes[axis] > std::numeric_limits<int32_t>::max())
      throw cxxrun::DataError("{} says that its axis {} is {} long; the file is damaged", place_, axis, sizes[axis]);
    shape_.push_back(static_cast<int64_t>(sizes[axis]));
  }
}

std::vector<float> Hdf5Dataset::read_floats() const {
  if (shape_.size() != 2 || !is_float())
    throw cxxrun::DataError("{} is not a table of floating-point numbers [rows, width]", place_);
  const auto count = static_cast<size_t>(shape_[0]) * static_cast<size_t>(shape_[1]);
  if (count > kLargestRead / sizeof(float))
    throw cxxrun::DataError("{} says that it has {} x {} numbers; the file is damaged", place_, shape_[0], shape_[1]);
  std::vector<float> values(count);
  if (H5Dread(dataset_.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0)
    throw unreadable(place_);
  return values;
}

std::string Hdf5Dataset::read_string(int64_t row) const {
  const size_t size = H5Tget_size(type_.get());
  if (shape_.size() != 1 || !is_fixed_string() || row < 0 || row >= rows() || size > kLargestRead)
    throw cxxrun::DataError("{} has no row {} of fixed-length strings", place_, row);
  const hsize_t start = static_cast<hsize_t>(row), count = 1;
  const Hdf5Id memory(H5Screate_simple(1, &count, nullptr), H5Sclose), rows(H5Scopy(space_.get()), H5Sclose);
  std::string value(size, '\0');
  if (!memory || !rows || H5Sselect_hyperslab(rows.get(), H5S_SELECT_SET, &start, nullptr, &count, nullptr) < 0 ||
      H5Dread(dataset_.get(), type_.get(), memory.get(), rows.get(), H5P_DEFAULT, value.data()) < 0)
    throw unreadable(fmt::format("{}, row {},", place_, row));
  return value;
}

Hdf5File::Hdf5File(std::string path) : path_(std::move(path)), file_(opened_file(path_)) {}

Hdf5Dataset Hdf5File::dataset(const std::string& name) const {
  const std::string place = path_ + ": /" + name;
  const Hdf5Id access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
  if (!access || H5Pset_elink_cb(access.get(), refuse_link, nullptr) < 0) throw unreadable(place);
  Hdf5Id dataset(H5Dopen2(file_.get(), name.c_str(), access.get()), H5Dclose);
  if (!dataset) throw unreadable(place);
  return {std::move(dataset), place};
}

std::vector<std::string> Hdf5File::names(const std::string& group) const {
  std::vector<std::string> result;
  const Hdf5Id access(H5Pcreate(H5P_GROUP_ACCESS), H5Pclose);
  if (!access || H5Pset_elink_cb(access.get(), refuse_link, nullptr) < 0) return result;
  const Hdf5Id opened(H5Gopen2(file_.get(), group.c_str(), access.get()), H5Gclose);
  if (!opened) return result;
  H5Literate(
      opened.get(), H5_INDEX_NAME, H5_ITER_NATIVE, nullptr,
      [](hid_t, const char* name, const H5L_info_t*, void* names) -> herr_t {
        static_cast<std::vector<std::string>*>(names)->emplace_back(name);
        return 0;
      },
      &result);
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace vla::data
