// Options of the "data" section: how samples are read, as opposed to which ("dataset") and how many at once ("training").
#pragma once

#include <cstdint>
#include <string>

#include "common/option_table.hpp"

namespace vla::data {

struct DataOptions {
  std::string cache = "auto";
  double cache_gb = 0;  // 10^9 bytes, of one node; 0 = chosen from the memory that is free
  std::string cache_dir = {};
  std::string on_error = "fail";
  int64_t prefetch = 4;

  void describe(cxxrun::OptionTable& table);
};

}  // namespace vla::data
