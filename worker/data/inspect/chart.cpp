#include "worker/data/inspect/chart.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace vla::data {
namespace {

constexpr std::array kColors = {"#4e79a7", "#f28e2b", "#e15759", "#59a14f", "#b07aa1",
                                "#76b7b2", "#d4a600", "#ff77a8", "#9c755f", "#7f7f7f"};
constexpr std::array kDashes = {"none", "6 3", "2 2", "8 3 2 3"};
constexpr double kAxisWidth = 56, kLegendWidth = 250, kLegendRow = 16, kSmallestHeight = 150, kTitleHeight = 22,
                 kTimeHeight = 20;
// One range of values would flatten a curve whose own is this much smaller.
constexpr double kVeryDifferent = 50;
constexpr double kPointsPerPixel = 2;

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;

  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool is_empty() const { return low > high; }
  double size() const { return is_empty() ? 0 : high - low; }
};

Range range_of(const Curve& curve) {
  Range range;
  for (const double value : curve.values) range.add(value);
  return range;
}

// 1, 2 or 5 times a power of ten that divides `size` into about `parts`.
double nice_step(double size, double parts) {
  const double raw = size / parts, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

// Frames to draw: all, or the extremes of each group of neighbours where there are more than pixels.
std::vector<size_t> drawn_frames(const std::vector<double>& values, double pixels) {
  std::vector<size_t> frames;
  const auto group = static_cast<size_t>(
      std::max(1.0, std::ceil(2 * static_cast<double>(values.size()) / (kPointsPerPixel * pixels))));
  for (size_t begin = 0; begin < values.size(); begin += group) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto [low, high] =
        std::minmax_element(first, first + static_cast<std::ptrdiff_t>(std::min(group, values.size() - begin)));
    frames.push_back(static_cast<size_t>(std::min(low, high) - values.begin()));
    if (low != high) frames.push_back(static_cast<size_t>(std::max(low, high) - values.begin()));
  }
  return frames;
}

struct Style {
  const char *color, *dashes;
};
Style style_of(size_t curve) {
  return {kColors[curve % kColors.size()], kDashes[curve / kColors.size() % kDashes.size()]};
}

struct Area {
  double left, top, width, height;
};

void draw_axes(Svg& svg, const Area& area, const Range& range, double seconds, bool has_values, const Chart& chart) {
  svg.rectangle(area.left, area.top, area.width, area.height, "plot");
  const auto x_of = [&](double time) { return area.left + (seconds > 0 ? time / seconds : 0.5) * area.width; };
  if (has_values) {
    const double step = nice_step(range.size(), area.height / 40);
    const double first = std::ceil(range.low / step) * step;
    for (int i = 0; first + i * step <= range.high; ++i) {  // adding up would stand still where a step is less than a value's last digit
      const double value = first + i * step;
      const double y = area.top + (range.high - value) / range.size() * area.height;
      svg.line(area.left, y, area.left + area.width, y, "grid");
      svg.text(area.left - 6, y + 4, fmt::format("{:.4g}", std::abs(value) < step / 2 ? 0 : value), "small", "end");
    }
  }
  const double step = seconds > 0 ? nice_step(seconds, 8) : 1;
  for (int64_t i = 0; static_cast<double>(i) * step <= seconds * (1 + 1e-9); ++i) {
    const double time = static_cast<double>(i) * step;
    svg.line(x_of(time), area.top + area.height, x_of(time), area.top + area.height + 4, "grid");
    svg.text(x_of(time), area.top + area.height + 16, fmt::format("{:.4g} s", time), "small", "middle");
  }
  for (const int64_t frame : chart.marked_frames) {
    const double x = x_of(static_cast<double>(frame) / chart.fps);
    svg.line(x, area.top, x, area.top + area.height, "mark");
  }
}

void draw_curve(Svg& svg, const Area& area, const Curve& curve, const Range& range, Style style) {
  const double last = std::max<double>(1, static_cast<double>(curve.values.size()) - 1);
  std::vector<std::pair<double, double>> points;
  const auto flush = [&] {
    svg.curve(points, style.color, style.dashes, curve.name);
    points.clear();
  };
  for (const size_t frame : drawn_frames(curve.values, area.width)) {
    const double value = curve.values[frame];
    if (!std::isfinite(value)) {
      flush();
      continue;
    }
    const double share = range.size() > 0 ? (range.high - value) / range.size() : 0.5;
    points.emplace_back(area.left + static_cast<double>(frame) / last * area.width, area.top + share * area.height);
  }
  flush();
}

void draw_legend(Svg& svg, double left, double top, const Curve& curve, const Range& range, Style style) {
  const std::pair<double, double> swatch[] = {{left, top}, {left + 22, top}};
  svg.curve(swatch, style.color, style.dashes, curve.name);
  const bool is_constant = range.size() == 0;
  const std::string values = range.is_empty() ? "no finite values"
                             : is_constant    ? fmt::format("constant {:.4g}", range.low)
                                              : fmt::format("{:.4g} to {:.4g}", range.low, range.high);
  svg.text(left + 28, top + 4, fmt::format("{}: {}", curve.name, values), is_constant ? "small bad" : "small");
}

}  // namespace

double draw_chart(Svg& svg, const Chart& chart, double left, double top) {
  Range all, sizes;
  std::vector<Range> ranges;
  for (const Curve& curve : chart.curves) {
    ranges.push_back(range_of(curve));
    all.add(ranges.back().low);
    all.add(ranges.back().high);
    if (ranges.back().size() > 0) sizes.add(ranges.back().size());
  }
  const bool own_ranges = !sizes.is_empty() && sizes.high > kVeryDifferent * sizes.low;
  if (all.is_empty()) all = {0, 0};
  const double border = all.size() > 0 ? 0.04 * all.size() : std::max(1e-3, std::abs(all.low));
  all = {all.low - border, all.high + border};

  svg.text(left, top + 14, chart.title + (own_ranges ? ", every curve in its own range" : ""), "head");
  const double height = std::max(kSmallestHeight, kLegendRow * static_cast<double>(chart.curves.size()));
  const Area area{left + kAxisWidth, top + kTitleHeight, svg.width() - 2 * left - kAxisWidth - kLegendWidth, height};
  const double seconds = static_cast<double>(chart.curves.front().values.size() - 1) / chart.fps;
  draw_axes(svg, area, all, seconds, !own_ranges, chart);
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    draw_curve(svg, area, chart.curves[i], own_ranges ? ranges[i] : all, style_of(i));
    draw_legend(svg, area.left + area.width + 14, area.top + kLegendRow * (static_cast<double>(i) + 0.5),
                chart.curves[i], ranges[i], style_of(i));
  }
  return area.top + height + kTimeHeight;
}

}  // namespace vla::data
