// What the tests of datasets share: a temporary folder, samples by field name, expected values from JSON, damaged copies.
#pragma once

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/atomic_file.hpp"
#include "worker/data/dataset.hpp"

namespace vla::data {

inline const std::string kData = TEST_DATA_DIR;

class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "data_test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  // A copy of a dataset below tests/data, to be damaged.
  std::string copy(const std::string& dataset) const {
    const std::string target = path_ + "/dataset";
    std::filesystem::copy(kData + "/" + dataset, target, std::filesystem::copy_options::recursive);
    return target;
  }

 private:
  std::string path_;
};

// One sample as typed vectors by field name.
class Sample {
 public:
  Sample(const SampleLayout& layout, SampleReader& reader, int64_t index) : layout_(layout) {
    std::vector<std::byte*> destination;
    for (const Field& field : layout.fields) {
      values_[field.key].resize(field.bytes_per_row);
      destination.push_back(values_[field.key].data());
    }
    reader.read(index, destination);
  }

  template <class T>
  std::vector<T> get(const std::string& key) const {
    const std::vector<std::byte>& bytes = values_.at(key);
    std::vector<T> result(bytes.size() / sizeof(T));
    std::memcpy(result.data(), bytes.data(), bytes.size());
    return result;
  }
  int64_t number(const std::string& key) const { return get<int64_t>(key).at(0); }
  const std::vector<int64_t>& shape(const std::string& key) const {
    for (const Field& field : layout_.fields) {
      if (field.key == key) return field.shape;
    }
    throw std::out_of_range(key);
  }
  bool operator==(const Sample& other) const { return values_ == other.values_; }

 private:
  const SampleLayout& layout_;
  std::map<std::string, std::vector<std::byte>> values_;
};

inline nlohmann::json read_json_file(const std::string& path) { return nlohmann::json::parse(cxxrun::read_file(path)); }

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Changes a JSON file by a function of its contents.
template <class Edit>
void edit_json(const std::string& path, Edit edit) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(cxxrun::read_file(path));
  edit(json);
  write_text(path, json.dump(4));
}

// The message of the exception that `action` throws, "" for none.
template <class Exception, class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace vla::data
