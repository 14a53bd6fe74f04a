// Writes an SVG picture that needs no other file. Text is escaped; lengths are pixels.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace vla::data {

// As XML text: bytes that are no UTF-8 and characters that XML forbids are replaced.
std::string escape_xml(const std::string& text);

class Svg {
 public:
  explicit Svg(double width) : width_(width) {}

  double width() const { return width_; }
  // `style`: a class of kStyle in svg.cpp. `anchor`: "start", "middle" or "end".
  void text(double x, double y, const std::string& text, std::string_view style = "",
            std::string_view anchor = "start");
  void line(double x1, double y1, double x2, double y2, std::string_view style);
  void rectangle(double x, double y, double width, double height, std::string_view style);
  void jpeg(double x, double y, double width, double height, std::string_view file);
  void curve(std::span<const std::pair<double, double>> points, std::string_view color, std::string_view dashes,
             const std::string& title);

  std::string finish(double height) const;

 private:
  double width_;
  std::string body_;
};

}  // namespace vla::data
