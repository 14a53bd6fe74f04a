#include "worker/data/inspect/view.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/ranges.h>

#include "common/error.hpp"
#include "worker/data/frame_reader.hpp"
#include "worker/data/inspect/chart.hpp"
#include "worker/data/inspect/jpeg.hpp"
#include "worker/data/inspect/sample_buffer.hpp"
#include "worker/data/inspect/svg.hpp"
#include "worker/data/json_file.hpp"
#include "worker/data/lerobot/lerobot_dataset.hpp"

namespace vla::data {
namespace {

constexpr double kWidth = 1240, kMargin = 24, kGap = 6;
constexpr double kPixelsPerLength = 2;  // of pictures, for sharp screens
constexpr size_t kTaskLine = 150, kTaskLines = 4;

bool is_drawn(const Feature& feature) {
  return feature.type == FeatureType::kState || feature.type == FeatureType::kAction ||
         feature.type == FeatureType::kEnvironment;
}

std::vector<std::string> dimension_names(const std::string& root, const Feature& feature) {
  const auto count = static_cast<size_t>(element_count(feature.shape));
  std::vector<std::string> names;
  if (is_lerobot(root)) {
    const nlohmann::ordered_json info = read_json(root + "/meta/info.json");
    const auto described = info["features"].value(feature.key, nlohmann::ordered_json::object());
    auto list = described.value("names", nlohmann::ordered_json());
    if (list.is_object() && list.size() == 1) list = nlohmann::ordered_json(list.front());  // {"motors": […]}
    for (size_t i = 0; list.is_array() && i < list.size() && list[i].is_string(); ++i)
      names.push_back(list[i].get<std::string>());
  }
  if (names.size() == count) return names;
  names.clear();
  for (size_t i = 0; i < count; ++i) names.push_back(fmt::format("[{}]", i));
  return names;
}

struct Numbers {
  std::vector<Chart> charts;
  std::set<int64_t> tasks;
};

Numbers read_numbers(const Dataset& dataset, const std::string& root, const std::vector<int64_t>& marked_frames) {
  Numbers out;
  SampleRequest request;
  for (const Feature& feature : dataset.features()) {
    if (!is_drawn(feature)) continue;
    request.push_back({feature.key, {}});
    Chart& chart = out.charts.emplace_back(Chart{feature.key, {}, dataset.fps(), marked_frames});
    for (std::string& name : dimension_names(root, feature)) chart.curves.push_back({std::move(name), {}});
  }
  // make_layout() instead of Dataset::layout(), which refuses values that are to be seen here.
  SampleBuffer buffer(make_layout(dataset.features(), request));
  const auto reader = dataset.open_reader(request);
  for (int64_t sample = 0; sample < dataset.size(); ++sample) {
    buffer.read(*reader, sample);
    out.tasks.insert(buffer.number("task_index"));
    for (Chart& chart : out.charts) {
      const std::vector<double> values = buffer.numbers(chart.title);
      for (size_t i = 0; i < values.size(); ++i) chart.curves[i].values.push_back(values[i]);
    }
  }
  return out;
}

std::vector<int64_t> evenly_spread(int64_t length, int64_t count) {
  count = std::min(length, count);
  std::vector<int64_t> frames;
  for (int64_t i = 0; i < count; ++i)
    frames.push_back(count == 1 ? 0
                                : std::lround(static_cast<double>(i * (length - 1)) / static_cast<double>(count - 1)));
  return frames;
}

double draw_camera(Svg& svg, const Dataset& dataset, const Feature& camera, const std::vector<int64_t>& frames,
                   int64_t columns, double top) {
  const double width =
      (svg.width() - 2 * kMargin - kGap * static_cast<double>(columns - 1)) / static_cast<double>(columns);
  const double height = width * static_cast<double>(camera.shape[0]) / static_cast<double>(camera.shape[1]);
  svg.text(kMargin, top + 14, fmt::format("{}, {}x{} (height x width)", camera.key, camera.shape[0], camera.shape[1]),
           "head");
  top += 22;
  const SampleRequest request = {{camera.key, {}}};
  SampleBuffer buffer(make_layout(dataset.features(), request));
  const auto reader = dataset.open_reader(request);
  for (size_t i = 0; i < frames.size(); ++i) {
    const double x = kMargin + static_cast<double>(i) * (width + kGap);
    try {
      buffer.read(*reader, frames[i]);
      svg.jpeg(x, top, width, height,
               encode_jpeg(buffer.bytes(camera.key), camera.shape[0], camera.shape[1],
                           std::lround(width * kPixelsPerLength)));
    } catch (const cxxrun::DataError& error) {
      svg.rectangle(x, top, width, height, "gap");
      svg.text(x + width / 2, top + height / 2, "cannot be decoded", "small bad", "middle");
    }
    svg.text(x, top + height + 14,
             fmt::format("frame {}, {:.2f} s", frames[i], static_cast<double>(frames[i]) / dataset.fps()), "small");
  }
  return top + height + 22;
}

// Lines of about kTaskLine bytes, broken at spaces.
std::vector<std::string> wrap(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t space = text.size() > kTaskLine ? text.rfind(' ', kTaskLine) : std::string_view::npos;
    const bool is_broken = space != std::string_view::npos && space > 0 && lines.size() + 1 < kTaskLines;
    lines.emplace_back(text.substr(0, is_broken ? space : text.size()));
    text.remove_prefix(is_broken ? space + 1 : text.size());
  }
  return lines;
}

}  // namespace

std::string draw_episode(const Dataset& dataset, const std::string& root, int64_t frames_shown) {
  const std::vector<int64_t> frames = evenly_spread(dataset.size(), frames_shown);
  const Numbers numbers = read_numbers(dataset, root, frames);

  Svg svg(kWidth);
  double y = 36;
  svg.text(kMargin, y, fmt::format("Episode {} of {}", dataset.episodes().front().index, dataset.description()),
           "title");
  for (const int64_t task : numbers.tasks) {
    const bool is_known = task >= 0 && task < static_cast<int64_t>(dataset.tasks().size());
    for (const std::string& line :
         wrap(is_known ? dataset.tasks()[static_cast<size_t>(task)] : fmt::format("task {}: no text", task)))
      svg.text(kMargin, y += 22, line, is_known ? "task" : "task bad");
  }
  svg.text(kMargin, y += 20,
           fmt::format("{} frames at {} frames/s, {:.2f} s", dataset.size(), dataset.fps(),
                       static_cast<double>(dataset.size()) / dataset.fps()),
           "small");
  y += 16;
  for (const Feature& feature : dataset.features()) {
    if (feature.type == FeatureType::kVisual) y = draw_camera(svg, dataset, feature, frames, frames_shown, y) + 12;
  }
  for (const Chart& chart : numbers.charts) y = draw_chart(svg, chart, kMargin, y) + 16;
  return svg.finish(y + 8);
}

}  // namespace vla::data
