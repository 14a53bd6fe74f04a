// Datasets: one that is right but for one file of metadata, whose bytes are the input, is opened, or refused with an Error. The first
// byte chooses the file: those of FUZZ_DATASET (a folder) that are neither parquet nor video, in the order of their paths;
// `fuzz_dataset --seeds FOLDER` writes their real contents as a corpus.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "common/atomic_file.hpp"
#include "common/error.hpp"
#include "worker/data/dataset.hpp"

namespace {

namespace fs = std::filesystem;

struct Template {
  fs::path folder;
  std::vector<fs::path> files;
  std::vector<std::string> contents;

  Template() {
    folder = fs::temp_directory_path() / ("fuzz_dataset." + std::to_string(::getpid()));
    const char* original = std::getenv("FUZZ_DATASET");
    if (original == nullptr) throw cxxrun::Error("FUZZ_DATASET names no dataset");
    fs::copy(original, folder, fs::copy_options::recursive);
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const std::string extension = entry.path().extension();
      if (entry.is_regular_file() && extension != ".parquet" && extension != ".mp4") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) contents.push_back(cxxrun::read_file(file));
  }
  ~Template() { fs::remove_all(folder); }
};

Template& dataset() {
  static Template value;
  return value;
}

void write(const fs::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc == 3 && std::string_view((*argv)[1]) == "--seeds") {
    for (size_t i = 0; i < dataset().files.size(); ++i) {
      write(fs::path((*argv)[2]) / ("seed" + std::to_string(i)), std::string(1, static_cast<char>(i)) + dataset().contents[i]);
    }
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || data[0] >= dataset().files.size()) return -1;
  const size_t chosen = data[0];
  write(dataset().files[chosen], {reinterpret_cast<const char*>(data) + 1, size - 1});
  try {
    const auto opened = vla::data::open_dataset({.root = dataset().folder});
    vla::data::SampleRequest request;
    for (const auto& feature : opened->features()) request.push_back({feature.key, {0, 1}});
    const auto layout = opened->layout(request);
    std::vector<std::vector<std::byte>> values;
    std::vector<std::byte*> destination;
    for (const auto& field : layout.fields) destination.push_back(values.emplace_back(field.bytes_per_row).data());
    opened->open_reader(request)->read(0, destination);
  } catch (const cxxrun::Error&) {
  }
  write(dataset().files[chosen], dataset().contents[chosen]);
  return 0;
}
