#include "worker/data/inspect/arguments.hpp"

#include <fmt/ranges.h>

#include "common/error.hpp"
#include "common/option_text.hpp"

namespace vla::data {

VerbArguments split_arguments(std::span<const std::string> arguments, cxxrun::OptionTable& table) {
  const auto is_flag = [&](std::string_view name) {
    const cxxrun::OptionRow* row = table.find(name);
    return row != nullptr && std::holds_alternative<bool*>(row->value);
  };
  VerbArguments result;
  std::vector<std::string> options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      result.wants_help = true;
    } else if (!argument.starts_with("--")) {
      result.positionals.push_back(argument);
    } else {
      options.push_back(argument);
      const bool takes_next =
          argument.find('=') == std::string::npos && !is_flag(cxxrun::canonical_name(argument.substr(2)));
      if (takes_next && i + 1 < arguments.size()) options.push_back(arguments[++i]);
    }
  }
  if (!result.wants_help) result.settings = cxxrun::parse_command_line(options, is_flag);
  return result;
}

std::string parse_dataset_arguments(std::span<const std::string> arguments, cxxrun::OptionTable& table,
                                    std::string_view help, std::ostream& out) {
  const VerbArguments split = split_arguments(arguments, table);
  if (split.wants_help) {
    out << help << cxxrun::help_text(table);
    return "";
  }
  for (const cxxrun::Setting& setting : split.settings) cxxrun::apply_setting(table, setting);
  return only_dataset(split);
}

const std::string& only_dataset(const VerbArguments& arguments) {
  if (arguments.positionals.size() != 1) {
    throw cxxrun::UsageError("expected one dataset, got {}{}{}; options are written --name value",
                             arguments.positionals.size(), arguments.positionals.empty() ? "" : ": ",
                             fmt::join(arguments.positionals, ", "));
  }
  return arguments.positionals.front();
}

}  // namespace vla::data
