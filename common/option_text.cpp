#include "common/option_text.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <type_traits>

#include <fmt/ranges.h>

namespace cxxrun {
namespace {

constexpr size_t kColumns = 100;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string written(bool value) { return value ? "true" : "false"; }
std::string written(int64_t value) { return std::to_string(value); }

std::string written(double value) {
  std::string text = fmt::format("{}", value);  // the shortest that reads back to the same number
  // YAML 1.1 readers take "1e-05" for text.
  if (text.find('.') == std::string::npos) text.insert(std::min(text.find('e'), text.size()), ".0");
  return text;
}

std::string written(const std::string& text) {
  static constexpr std::string_view kReserved[] = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"};
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || c == '_' || c == '/'; };
  const auto is_inner = [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-';
  };
  const bool is_plain = !text.empty() && is_letter(text[0]) && std::ranges::all_of(text, is_inner);
  return is_plain && std::ranges::find(kReserved, text) == std::end(kReserved) ? text : quoted(text);
}

template <class T>
std::string written(const std::vector<T>& values) {
  std::vector<std::string> items;
  for (const T& value : values) items.push_back(written(value));
  return fmt::format("[{}]", fmt::join(items, ", "));
}

std::string value_of(const OptionRow& row) {
  return std::visit(
      [&](const auto* value) -> std::string {
        if constexpr (std::is_same_v<decltype(value), const int64_t*>) {
          if (!row.word.empty() && *value == row.word_value) return row.word;
        }
        return written(*value);
      },
      row.value);
}

std::string type_of(const OptionRow& row) {
  if (row.is_path) return "PATH";
  constexpr const char* kNames[] = {"true|false", "N", "X", "TEXT", "[N, ...]", "[X, ...]", "[TEXT, ...]"};
  return kNames[row.value.index()];
}

void append_wrapped(std::string& out, std::string_view text, std::string_view indent) {
  size_t column = 0;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    if (column > 0 && column + 1 + space > kColumns) {
      out += '\n';
      column = 0;
    }
    const std::string_view gap = column == 0 ? indent : " ";
    out.append(gap).append(text.substr(0, space));
    column += gap.size() + space;
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  out += '\n';
}

// Options of one section become one block, even when they were declared apart.
void append_section(std::string& out, const std::vector<const OptionRow*>& rows, size_t prefix_size,
                    const std::string& indent) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<const OptionRow*>> sections;
  for (const OptionRow* row : rows) {
    const size_t dot = row->name.find('.', prefix_size);
    if (dot == std::string::npos) {
      std::string comment = row->source.empty() ? "" : "  # " + row->source;
      std::ranges::replace(comment, '\n', ' ');
      out += fmt::format("{}{}: {}{}\n", indent, row->name.substr(prefix_size), value_of(*row), comment);
    } else {
      const std::string section = row->name.substr(0, dot + 1);
      if (!sections.contains(section)) order.push_back(section);
      sections[section].push_back(row);
    }
  }
  for (const std::string& section : order) {
    out += fmt::format("{}{}:\n", indent, section.substr(prefix_size, section.size() - prefix_size - 1));
    append_section(out, sections[section], section.size(), indent + "  ");
  }
}

}  // namespace

std::string help_text(const OptionTable& table) {
  std::string out;
  for (const OptionRow& row : table.rows()) {
    std::vector<std::string> notes;
    if (!row.unit.empty()) notes.push_back("in " + row.unit);
    if (!row.choices.empty()) {
      std::vector<std::string> words;
      for (const std::string& choice : row.choices) words.push_back(choice.empty() ? "\"\"" : choice);
      if (row.is_path) words.push_back("a path");
      notes.push_back(fmt::format("{}", fmt::join(words, " | ")));
    }
    if (!row.word.empty()) notes.push_back(fmt::format("N or {}", row.word));
    if (std::isfinite(row.minimum)) notes.push_back(fmt::format("at least {}", row.minimum));
    if (std::isfinite(row.maximum)) notes.push_back(fmt::format("at most {}", row.maximum));
    notes.push_back("default " + value_of(row));
    out += fmt::format("  --{} {}\n", row.name, type_of(row));
    append_wrapped(out, fmt::format("{} ({})", row.help, fmt::join(notes, "; ")), "        ");
  }
  return out;
}

std::string dump_yaml(const OptionTable& table) {
  std::vector<const OptionRow*> rows;
  for (const OptionRow& row : table.rows()) {
    if (!row.is_transient) rows.push_back(&row);
  }
  std::string out;
  append_section(out, rows, 0, "");
  return out;
}

}  // namespace cxxrun
