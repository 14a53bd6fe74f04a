#include "launcher/options/option_values.hpp"

#include <cctype>
#include <charconv>

#include "common/error.hpp"

namespace po = boost::program_options;

namespace cxxrun {
namespace {

using Kind = OptionSpec::Kind;
using Origin = OptionSpec::Origin;

po::options_description describe_options(const char* caption, Origin origin) {
  po::options_description description(caption, 120, 60);
  for (const OptionSpec& spec : option_specs()) {
    if (spec.origin != origin) continue;
    const std::string fallback(spec.fallback);
    std::string names(spec.name);
    if (spec.letter) names += std::string(",") + spec.letter;
    const po::value_semantic* semantic = nullptr;
    if (spec.kind == Kind::kFlag) {
      semantic = po::bool_switch();
    } else if (spec.kind == Kind::kInteger) {
      auto* value = po::value<int>()->value_name("N");
      semantic = fallback.empty() ? value : value->default_value(std::stoi(fallback));
    } else if (spec.kind == Kind::kNumber) {
      auto* value = po::value<double>()->value_name("S");
      semantic = fallback.empty() ? value : value->default_value(std::stod(fallback), fallback);
    } else {
      auto* value = po::value<std::string>()->value_name("X");
      semantic = fallback.empty() ? value : value->default_value(fallback);
    }
    description.add_options()(names.c_str(), semantic, std::string(spec.help).c_str());
  }
  return description;
}

// The first source to name an option wins, so sources are stored in order of precedence.
void store(po::variables_map& values, const po::options_description& description, const OptionSpec& spec,
           std::string text, const std::string& source) {
  if (spec.kind == Kind::kInteger) text = std::to_string(required_int(text, source));
  po::parsed_options parsed(&description);
  parsed.options.emplace_back(std::string(spec.name), std::vector<std::string>{text});
  try {
    po::store(parsed, values);
  } catch (const po::error& error) {
    throw UsageError("{}: {}", source, error.what());
  }
}

}  // namespace

po::options_description option_descriptions() {
  po::options_description all;
  all.add(describe_options("torchrun's options (each also with underscores)", Origin::kTorchrun));
  all.add(describe_options("cxxrun's own options", Origin::kOwn));
  all.add(describe_options("accelerate's spellings", Origin::kAccelerate));
  return all;
}

po::variables_map read_option_values(const SplitArguments& split, const Environment& environment) {
  const po::options_description description = option_descriptions();
  po::variables_map values;
  for (auto option = split.options.rbegin(); option != split.options.rend(); ++option) {  // the last one given wins
    store(values, description, *option->first, option->second, "--" + std::string(option->first->name));
  }
  for (const OptionSpec& spec : option_specs()) {
    const std::string variable = spec.variable();
    const auto text = variable.empty() ? std::nullopt : environment(variable);
    if (!text) continue;
    store(values, description, spec,
          spec.kind == Kind::kFlag ? std::to_string(required_int(*text, variable) != 0) : *text, variable);
  }
  po::store(po::parsed_options(&description), values);  // the defaults
  return values;
}

int required_int(const std::string& text, const std::string& source) {
  const auto value = parse_python_int(text);
  if (!value) throw UsageError("{}: '{}' is not an integer", source, text);
  return *value;
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> items(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      items.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      items.back() += text[i++];
    } else {
      items.emplace_back();
    }
  }
  return items;
}

std::optional<int> parse_python_int(const std::string& text) {
  static constexpr char kBlanks[] = " \t\r\n\f\v";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == text.npos) return std::nullopt;
  std::string number = text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
  if (number[0] == '+' && number.size() > 1 && number[1] != '-') number.erase(0, 1);
  for (size_t at = number.find('_'); at != number.npos; at = number.find('_', at)) {
    const auto is_digit = [&](size_t i) {
      return i < number.size() && std::isdigit(static_cast<unsigned char>(number[i]));
    };
    if (at == 0 || !is_digit(at - 1) || !is_digit(at + 1)) return std::nullopt;
    number.erase(at, 1);
  }
  int value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  return error == std::errc() && end == number.data() + number.size() ? std::optional(value) : std::nullopt;
}

}  // namespace cxxrun
