// Finds a row by name in an explicit const table, and turns a miss into an error that names the nearest row.
// Tables are arrays of structs with a `name` member convertible to string_view.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "common/error.hpp"

namespace cxxrun {

// The candidate nearest to `word` by edit distance (a swap of neighbours counts once), or "" when none is near enough
// to be a likely misspelling.
std::string nearest_name(std::string_view word, const std::vector<std::string_view>& candidates);

// "; did you mean 'act'?" or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates);

template <class Table>
const auto& find_in_registry(const Table& table, std::string_view name, std::string_view kind) {
  std::vector<std::string_view> names;
  for (const auto& row : table) {
    if (name == row.name) return row;
    names.push_back(row.name);
  }
  throw UsageError("unknown {} '{}' (known: {}){}", kind, name, fmt::join(names, ", "), did_you_mean(name, names));
}

}  // namespace cxxrun
