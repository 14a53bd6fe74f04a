// Datasets of an HDF5 file, read only, by libhdf5: their shapes, rows of numbers, rows of fixed-length strings. What the file says of
// itself is checked before anything of its size is allocated; links to other files, data stored in other files and virtual datasets are
// refused. libhdf5 itself is not hardened against files made to harm (of damaged ones it asks for absurd amounts of memory and leaks
// some): open recordings whose origin you know. Throws DataError naming file, dataset and row, with libhdf5's reason. libhdf5 keeps
// global state: one thread at a time in the process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <hdf5.h>

namespace vla::data {

// Owns an identifier of libhdf5.
class Hdf5Id {
 public:
  using Close = herr_t (*)(hid_t);
  Hdf5Id(hid_t id, Close close) : id_(id), close_(close) {}
  Hdf5Id(Hdf5Id&& other) noexcept : id_(other.id_), close_(other.close_) { other.id_ = H5I_INVALID_HID; }
  Hdf5Id& operator=(Hdf5Id&&) = delete;
  ~Hdf5Id() {
    if (id_ >= 0) close_(id_);
  }
  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }

 private:
  hid_t id_;
  Close close_;
};

class Hdf5Dataset {
 public:
  const std::string& place() const { return place_; }  // file and dataset, for messages
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t rows() const { return shape_.empty() ? 1 : shape_[0]; }
  bool is_float() const { return H5Tget_class(type_.get()) == H5T_FLOAT; }
  bool is_fixed_string() const {
    return H5Tget_class(type_.get()) == H5T_STRING && H5Tis_variable_str(type_.get()) == 0;
  }

  // All rows of a float16, float32 or float64 dataset of [rows, width].
  std::vector<float> read_floats() const;
  // One row of a dataset of [rows] fixed-length strings, with its padding of NULs.
  std::string read_string(int64_t row) const;

 private:
  friend class Hdf5File;
  Hdf5Dataset(Hdf5Id dataset, std::string place);

  Hdf5Id dataset_, type_, space_;
  std::string place_;
  std::vector<int64_t> shape_;
};

class Hdf5File {
 public:
  explicit Hdf5File(std::string path);

  const std::string& path() const { return path_; }
  Hdf5Dataset dataset(const std::string& name) const;  // "joint_action/vector"
  std::vector<std::string> names(
      const std::string& group) const;  // its members, sorted; none if there is no such group

 private:
  std::string path_;
  Hdf5Id file_;
};

}  // namespace vla::data
