// The folder of one launch: <log dir>/<run id>_<random>, in which each attempt has attempt_N/<local rank>/ with the rank's error
// file and logs. Without --log-dir it is a temporary one, removed by the destructor unless logs were asked for. Both of
// cxxrun's processes own one object and remove it: one of them may have been killed. Throws Error where logs were asked for;
// error files alone are a courtesy, and without room for them there is no folder.
#pragma once

#include <string>

#include "launcher/options/output_options.hpp"

namespace cxxrun {

class LogFolder {
 public:
  LogFolder(const OutputOptions& options, const std::string& run_id, const std::string& temporary_folder);
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;
  ~LogFolder();

  const std::string& path() const { return path_; }  // "" = none
  bool is_kept() const { return kept_; }

 private:
  std::string path_;
  bool kept_ = false;
};

}  // namespace cxxrun
