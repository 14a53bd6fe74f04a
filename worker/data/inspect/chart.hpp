// Curves over time with axes and a legend, as part of an SVG picture.
#pragma once

#include <string>
#include <vector>

#include "worker/data/inspect/svg.hpp"

namespace vla::data {

struct Curve {
  std::string name;
  std::vector<double> values;  // of each frame; NaN leaves a gap
};

struct Chart {
  std::string title;
  std::vector<Curve> curves;  // of equal length
  double fps = 1;
  std::vector<int64_t> marked_frames;
};

// Draws with its upper edge at `top`, from `left` on to the same distance from the right edge; returns the lower edge.
double draw_chart(Svg& svg, const Chart& chart, double left, double top);

}  // namespace vla::data
