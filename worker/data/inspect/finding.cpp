#include "worker/data/inspect/finding.hpp"

#include <algorithm>

#include <fmt/ranges.h>

namespace vla::data {
namespace {

const char* name_of(Severity severity) { return severity == Severity::kError ? "error" : "warning"; }

nlohmann::ordered_json to_json(const Finding& finding) {
  nlohmann::ordered_json place = nlohmann::ordered_json::object();
  if (!finding.place.file.empty()) place["file"] = finding.place.file;
  if (finding.place.episode) place["episode"] = *finding.place.episode;
  if (finding.place.frame) place["frame"] = *finding.place.frame;
  if (!finding.place.feature.empty()) place["feature"] = finding.place.feature;
  return {{"severity", name_of(finding.severity)},
          {"kind", finding.kind},
          {"place", std::move(place)},
          {"message", finding.message},
          {"remedy", finding.remedy}};
}

std::string to_text(const Place& place) {
  std::vector<std::string> parts;
  if (place.episode) parts.push_back(fmt::format("episode {}", *place.episode));
  if (place.frame) parts.push_back(fmt::format("frame {}", *place.frame));
  if (!place.feature.empty()) parts.push_back(fmt::format("'{}'", place.feature));
  return parts.empty() ? "the dataset" : fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

Finding finding_of(const std::string& error, std::string kind, Place place, std::string_view remedy) {
  const size_t split = error.rfind("; ");
  const bool has_remedy = split != std::string::npos;
  return {Severity::kError, std::move(kind), std::move(place), error.substr(0, split),
          has_remedy ? error.substr(split + 2) : std::string(remedy)};
}

int64_t CheckReport::count(Severity severity) const {
  return std::ranges::count(findings, severity, &Finding::severity);
}

nlohmann::ordered_json CheckReport::to_json() const {
  nlohmann::ordered_json errors = nlohmann::ordered_json::array(), warnings = errors;
  for (const Finding& finding : findings)
    (finding.severity == Severity::kError ? errors : warnings).push_back(data::to_json(finding));
  return {{"dataset", dataset},
          {"episodes", episodes},
          {"frames", frames},
          {"errors", std::move(errors)},
          {"warnings", std::move(warnings)}};
}

void CheckReport::print(std::ostream& out) const {
  for (const Finding& finding : findings) {
    out << fmt::format("{} {}, {}: {}\n", name_of(finding.severity), finding.kind, to_text(finding.place),
                       finding.message);
    if (!finding.place.file.empty() && finding.message.find(finding.place.file) == std::string::npos)
      out << fmt::format("    in {}\n", finding.place.file);
    out << fmt::format("    {}\n", finding.remedy);
  }
  out << fmt::format("{}: {} episodes and {} frames checked, errors: {}, warnings: {}\n", dataset, episodes, frames,
                     count(Severity::kError), count(Severity::kWarning));
}

}  // namespace vla::data
