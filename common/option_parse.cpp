#include "common/option_parse.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <type_traits>

#include "common/error.hpp"
#include "common/registry.hpp"
#include "common/worker_env.hpp"
#include "common/yaml_config.hpp"

namespace cxxrun {
namespace {

constexpr double kLargestExactInteger = 9007199254740992.0;  // 2^53

std::optional<double> to_double(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<int64_t> to_integer(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  const auto number = to_double(text);  // people write 1e5 steps
  if (number && *number == std::trunc(*number) && std::abs(*number) <= kLargestExactInteger)
    return static_cast<int64_t>(*number);
  return std::nullopt;
}

std::optional<bool> to_bool(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
  for (const char* word : {"true", "yes", "on", "1"}) {
    if (lower == word) return true;
  }
  for (const char* word : {"false", "no", "off", "0"}) {
    if (lower == word) return false;
  }
  return std::nullopt;
}

bool is_name(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !text.empty() && is_letter(text[0]) && std::ranges::all_of(text, [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '.' || c == '-';
  });
}

bool has_scheme(std::string_view text) {
  const size_t colon = text.find(':');
  return colon != std::string_view::npos && colon > 1 && text.find('/') > colon;
}

[[noreturn]] void refuse(const Setting& setting, std::string_view value, std::string_view expected,
                         std::string_view hint = {}) {
  throw UsageError("{}: {}='{}': expected {}{}", setting.source, setting.name, value, expected, hint);
}

std::string range_of(const OptionRow& row) {
  if (std::isfinite(row.minimum) && std::isfinite(row.maximum))
    return fmt::format(" from {} to {}", row.minimum, row.maximum);
  if (std::isfinite(row.minimum)) return fmt::format(" of at least {}", row.minimum);
  if (std::isfinite(row.maximum)) return fmt::format(" of at most {}", row.maximum);
  return "";
}

template <class T>
T parse_item(const OptionRow& row, const Setting& setting, const std::string& text) {
  if constexpr (std::is_same_v<T, bool>) {
    const auto value = to_bool(text);
    if (!value) refuse(setting, text, "true or false");
    return *value;
  } else if constexpr (std::is_same_v<T, std::string>) {
    const bool is_choice = std::ranges::find(row.choices, text) != row.choices.end();
    if (row.is_path) {
      if (text.empty() || text == "none" || is_choice || has_scheme(text)) return text;
      // Of an item with fields, "path=DIR;weight=2", the one that is a path.
      if (const size_t field = text.find("path="); field == 0 || (field != std::string::npos && text[field - 1] == ';')) {
        const size_t begin = field + 5, end = std::min(text.find(';', begin), text.size());
        return text.substr(0, begin) + parse_item<T>(row, setting, text.substr(begin, end - begin)) + text.substr(end);
      }
      return std::filesystem::absolute(setting.directory / expand_home(text)).lexically_normal().string();
    }
    if (!row.choices.empty() && !is_choice) {
      refuse(setting, text, fmt::format("one of {}", fmt::join(row.choices, ", ")),
             did_you_mean(text, {row.choices.begin(), row.choices.end()}));
    }
    return text;
  } else {
    if (std::is_same_v<T, int64_t> && !row.word.empty() && text == row.word) return static_cast<T>(row.word_value);
    constexpr bool is_integer = std::is_same_v<T, int64_t>;
    const std::optional<T> value = [&] {
      if constexpr (is_integer)
        return to_integer(text);
      else
        return to_double(text);
    }();
    if (!value || static_cast<double>(*value) < row.minimum || static_cast<double>(*value) > row.maximum) {
      refuse(setting, text,
             (is_integer ? "an integer" : "a number") + range_of(row) + (row.word.empty() ? "" : " or " + row.word));
    }
    return *value;
  }
}

[[noreturn]] void refuse_bare(const Setting& setting) {
  throw UsageError("{}: --{} needs a value: --{}=VALUE", setting.source, setting.name, setting.name);
}

template <class T>
void assign(const OptionRow& row, const Setting& setting, T& value) {
  switch (setting.kind) {
    case Setting::Kind::kList:
      refuse(setting, fmt::format("[{}]", fmt::join(setting.items, ", ")), "one value, not a list");
    case Setting::Kind::kNull:
      if constexpr (std::is_same_v<T, std::string>) {
        value.clear();
        return;
      }
      refuse(setting, "", "a value");
    case Setting::Kind::kFlag:
      if (!std::is_same_v<T, bool> && std::ranges::find(row.choices, "true") == row.choices.end()) refuse_bare(setting);
      [[fallthrough]];
    case Setting::Kind::kScalar:
      value = parse_item<T>(row, setting, setting.text());
  }
}

template <class T>
void assign(const OptionRow& row, const Setting& setting, std::vector<T>& value) {
  if (setting.kind == Setting::Kind::kFlag) refuse_bare(setting);
  const bool is_text = setting.kind == Setting::Kind::kScalar && setting.text().starts_with('[');
  std::vector<T> parsed;  // the option keeps its value if an item is wrong
  for (const std::string& item : is_text ? parse_yaml_list(setting.text(), setting.source) : setting.items) {
    parsed.push_back(parse_item<T>(row, setting, item));
  }
  value = std::move(parsed);
}

}  // namespace

std::string canonical_name(std::string_view name) {
  std::string canonical(name);
  std::ranges::replace(canonical, '-', '_');
  return canonical;
}

std::vector<Setting> parse_command_line(std::span<const std::string> arguments,
                                        const std::function<bool(std::string_view)>& is_flag) {
  std::vector<Setting> settings;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    const bool has_dashes = argument.starts_with("--");
    std::string_view name =
        argument.substr(has_dashes ? 2 : std::min(argument.find_first_not_of('+'), argument.size()));
    const size_t equals = name.find('=');
    const bool has_value = equals != std::string_view::npos;
    const std::string_view value = has_value ? name.substr(equals + 1) : std::string_view();
    name = name.substr(0, equals);
    if (!is_name(name) || (!has_dashes && !has_value)) {
      throw UsageError(
          "command line: unexpected argument '{}'; options are written --name=value, --name value or name=value",
          argument);
    }
    Setting setting{.name = canonical_name(name), .source = "command line"};
    const std::string* next = i + 1 < arguments.size() ? &arguments[i + 1] : nullptr;
    if (has_value) {
      setting.items = {std::string(value)};
    } else if (next && !next->starts_with("--") && (!is_flag(setting.name) || to_bool(*next))) {
      setting.items = {*next};
      ++i;
    } else {
      setting.kind = Setting::Kind::kFlag;
      setting.items = {"true"};
    }
    if (setting.kind == Setting::Kind::kScalar && setting.text() == "null") {
      setting.kind = Setting::Kind::kNull;
      setting.items.clear();
    }
    settings.push_back(std::move(setting));
  }
  return settings;
}

bool parse_bool(const Setting& setting) {
  bool value = false;
  assign(OptionRow{.name = setting.name, .value = &value, .help = {}}, setting, value);
  return value;
}

void apply_setting(OptionTable& table, const Setting& setting, const std::vector<std::string_view>& more_names) {
  const std::string name = canonical_name(setting.name);
  OptionRow* row = table.find(name);
  if (row) {
    std::visit([&](auto* value) { assign(*row, setting, *value); }, row->value);
    row->source = setting.source;
    return;
  }
  std::vector<std::string_view> names = more_names;
  for (const OptionRow& known : table.rows()) {
    if (known.name.starts_with(name + ".") && setting.kind == Setting::Kind::kNull) return;  // an empty section
    if (name.starts_with(known.name + ".")) {
      throw UsageError("{}: unknown key '{}': '{}' is an option, not a section", setting.source, setting.name,
                       known.name);
    }
    names.push_back(known.name);
  }
  throw UsageError("{}: unknown key '{}'{}", setting.source, setting.name, did_you_mean(name, names));
}

std::filesystem::path expand_home(const std::string& path) {
  const auto home = environment_variable("HOME");
  if (!home || !(path == "~" || path.starts_with("~/"))) return path;
  return std::filesystem::path(*home) / (path.size() > 2 ? path.substr(2) : "");
}

}  // namespace cxxrun
