#include "worker/augment_options.hpp"

#include <limits>

#include <fmt/ranges.h>

#include "common/error.hpp"

namespace vla {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void check_range(const char* name, const std::vector<double>& range, double lowest, double highest) {
  if (range.size() == 2 && lowest <= range[0] && range[0] <= range[1] && range[1] <= highest) return;
  throw cxxrun::UsageError("augment.{} = [{}] must be [min, max] with {} <= min <= max <= {}", name, fmt::join(range, ", "), lowest, highest);
}

}  // namespace

void JitterOptions::describe(cxxrun::OptionTable& table) {
  table.add("range", range, "smallest and largest factor");
  table.add("weight", weight, "how often it is chosen, relative to the other transforms; 0 = never").at_least(0);
}

void AffineOptions::describe(cxxrun::OptionTable& table) {
  table.add("degrees", degrees, "smallest and largest angle of rotation");
  table.add("translate", translate, "largest shift along x and y, as shares of width and height");
  table.add("weight", weight, "how often it is chosen, relative to the other transforms; 0 = never").at_least(0);
}

void AugmentOptions::describe(cxxrun::OptionTable& table) {
  table.add("enable", enable, "change training images at random");
  table.add("probability", probability, "share of the images that are changed; the crop is not counted").at_least(0).at_most(1);
  table.add("max_num_transforms", max_num_transforms, "transforms applied to an image, chosen among those with a weight").at_least(1);
  table.add("random_order", random_order, "apply them in the order in which they are drawn instead of the order below; costs a pass "
                                          "over all transforms for each one applied");
  table.section("brightness", brightness);
  table.section("contrast", contrast);
  table.section("saturation", saturation);
  table.section("hue", hue);
  table.section("sharpness", sharpness);
  table.section("affine", affine);
  table.section("noise", noise);
  table.add("random_crop", random_crop, "cut a window of [height, width] at a random place and resize it to the image's size; empty = none")
      .at_least(1);
  table.add("crop_per_sample", crop_per_sample, "draw the window's place for every sample instead of once a step");
}

void AugmentOptions::validate() const {
  check_range("brightness.range", brightness.range, 0, kInfinity);
  check_range("contrast.range", contrast.range, 0, kInfinity);
  check_range("saturation.range", saturation.range, 0, kInfinity);
  check_range("hue.range", hue.range, -0.5, 0.5);
  check_range("sharpness.range", sharpness.range, 0, kInfinity);
  check_range("noise.range", noise.range, 0, kInfinity);
  check_range("affine.degrees", affine.degrees, -kInfinity, kInfinity);
  const auto is_share = [](double value) { return value >= 0 && value <= 1; };
  if (affine.translate.size() != 2 || !is_share(affine.translate[0]) || !is_share(affine.translate[1])) {
    throw cxxrun::UsageError("augment.affine.translate = [{}] must be two shares from 0 to 1", fmt::join(affine.translate, ", "));
  }
  if (!random_crop.empty() && (random_crop.size() != 2 || random_crop[0] < 1 || random_crop[1] < 1)) {
    throw cxxrun::UsageError("augment.random_crop = [{}] must be [height, width] or empty", fmt::join(random_crop, ", "));
  }
}

}  // namespace vla
