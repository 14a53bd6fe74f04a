// What a check of a dataset finds, and how it is told: as text or as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace vla::data {

enum class Severity : uint8_t { kError, kWarning };

struct Place {
  std::string file = {};
  std::optional<int64_t> episode = {}, frame = {};
  std::string feature = {};
};

struct Finding {
  Severity severity = Severity::kError;
  std::string kind;  // "unreadable_frame"
  Place place;
  std::string message;
  std::string remedy;
};

// A finding from the message of a DataError, whose last part is its remedy.
Finding finding_of(const std::string& error, std::string kind, Place place, std::string_view remedy);

struct CheckReport {
  std::string dataset;
  int64_t episodes = 0, frames = 0;  // that were checked
  std::vector<Finding> findings = {};  // by episode, those of the whole dataset last

  int64_t count(Severity severity) const;
  // {"dataset", "episodes", "frames", "errors": […], "warnings": […]}
  nlohmann::ordered_json to_json() const;
  void print(std::ostream& out) const;
};

}  // namespace vla::data
