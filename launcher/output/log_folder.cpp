#include "launcher/output/log_folder.hpp"

#include <cstdlib>
#include <filesystem>
#include <random>

#include "common/error.hpp"

namespace cxxrun {
namespace {

namespace fs = std::filesystem;

bool wants_logs(const OutputOptions& options) {
  return options.redirects.any() || options.tee.any() || !options.duplicate_stdout_filters.empty() ||
         !options.duplicate_stderr_filters.empty();
}

// Of a job's name, what may be part of a file name.
std::string file_name_of(std::string text) {
  for (char& c : text) {
    if (c == '/' || c == '\0') c = '_';
  }
  return text.substr(0, 200);
}

}  // namespace

LogFolder::LogFolder(const OutputOptions& options, const std::string& run_id, const std::string& temporary_folder) {
  if (options.log_dir == "/dev/null") return;
  kept_ = !options.log_dir.empty() || wants_logs(options);
  std::string name = temporary_folder + "/cxxrun-XXXXXX";
  if (!options.log_dir.empty()) {
    std::error_code error;
    if (fs::exists(options.log_dir, error) && !fs::is_directory(options.log_dir, error)) {
      throw Error("--log-dir={} is a file, not a folder", options.log_dir);
    }
    fs::create_directories(options.log_dir, error);
    // Eight random characters, as torchrun has; mkdtemp replaces six.
    name = fmt::format("{}/{}_{:02x}XXXXXX", fs::absolute(options.log_dir).lexically_normal().string(), file_name_of(run_id),
                       std::random_device()() & 0xff);
  }
  if (::mkdtemp(name.data())) {
    path_ = name;
  } else if (kept_) {
    throw errno_error(fmt::format("cannot make a folder for the logs in '{}'", fs::path(name).parent_path().string()));
  }
}

LogFolder::~LogFolder() {
  std::error_code ignored;
  if (!path_.empty() && !kept_) fs::remove_all(path_, ignored);
}

}  // namespace cxxrun
