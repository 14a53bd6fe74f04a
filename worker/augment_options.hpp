// Options of image augmentation (section "augment"): LeRobot's dataset.image_transforms with its defaults, and a random crop. No
// LibTorch; the work is worker/augment.hpp's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/option_table.hpp"

namespace vla {

struct JitterOptions {
  std::vector<double> range;  // [min, max] of the factor, drawn uniformly
  double weight = 1;  // how often it is among the chosen ones, relative to the others; 0 = never

  void describe(cxxrun::OptionTable& table);
};

struct AffineOptions {
  std::vector<double> degrees = {-5, 5};
  std::vector<double> translate = {0.05, 0.05};
  double weight = 1;

  void describe(cxxrun::OptionTable& table);
};

struct AugmentOptions {
  bool enable = false;
  double probability = 1;
  int64_t max_num_transforms = 3;
  bool random_order = false;
  JitterOptions brightness{.range = {0.8, 1.2}};
  JitterOptions contrast{.range = {0.8, 1.2}};
  JitterOptions saturation{.range = {0.5, 1.5}};
  JitterOptions hue{.range = {-0.05, 0.05}};
  JitterOptions sharpness{.range = {0.5, 1.5}};
  AffineOptions affine;
  JitterOptions noise{.range = {5, 25}, .weight = 0};
  std::vector<int64_t> random_crop;
  bool crop_per_sample = false;

  void describe(cxxrun::OptionTable& table);
  void validate() const;  // UsageError naming key and value
};

}  // namespace vla
