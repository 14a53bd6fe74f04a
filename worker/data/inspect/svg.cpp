#include "worker/data/inspect/svg.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "worker/data/inspect/jpeg.hpp"

namespace vla::data {
namespace {

constexpr std::string_view kStyle =
    "text{font:12px system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:#333}"
    ".title{font-size:18px;font-weight:600;fill:#111}.task{font-size:14px;fill:#111}.head{font-size:13px;font-weight:"
    "600;fill:#111}"
    ".small{font-size:11px;fill:#666}.bad{fill:#b00020;font-weight:600}"
    ".page{fill:#fff}.plot{fill:#fafafa;stroke:#d0d0d0}.gap{fill:#eee;stroke:#b00020}"
    ".grid{stroke:#e4e4e4}.mark{stroke:#bbb;stroke-dasharray:2 3}"
    ".curve{fill:none;stroke-width:1.5;stroke-linejoin:round}";

}  // namespace

std::string escape_xml(const std::string& text) {
  // The JSON library replaces what is not UTF-8.
  const nlohmann::json valid =
      nlohmann::json::parse(nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  std::string out;
  for (const char c : valid.get<std::string>()) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&apos;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

void Svg::text(double x, double y, const std::string& text, std::string_view style, std::string_view anchor) {
  body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y, style,
                       anchor, escape_xml(text));
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view style) {
  body_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2, y2,
                       style);
}

void Svg::rectangle(double x, double y, double width, double height, std::string_view style) {
  body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"{}\"/>\n", x, y,
                       width, height, style);
}

void Svg::jpeg(double x, double y, double width, double height, std::string_view file) {
  body_ += fmt::format(
      "<image x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" href=\"data:image/jpeg;base64,{}\"/>\n", x,
      y, width, height, base64(file));
}

void Svg::curve(std::span<const std::pair<double, double>> points, std::string_view color, std::string_view dashes,
                const std::string& title) {
  if (points.empty()) return;
  body_ += fmt::format("<polyline class=\"curve\" stroke=\"{}\" stroke-dasharray=\"{}\" points=\"", color, dashes);
  for (const auto& [x, y] : points) body_ += fmt::format("{:.1f},{:.1f} ", x, y);
  body_ += fmt::format("\"><title>{}</title></polyline>\n", escape_xml(title));
}

std::string Svg::finish(double height) const {
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\">\n<style>{2}</style>\n<rect width=\"100%\" height=\"100%\" "
      "class=\"page\"/>\n{3}</svg>\n",
      width_, height, kStyle, body_);
}

}  // namespace vla::data
