#include "launcher/options/argument_splitter.hpp"

#include <algorithm>
#include <cctype>
#include <optional>

#include "common/error.hpp"
#include "common/registry.hpp"

namespace cxxrun {
namespace {

using Kind = OptionSpec::Kind;

const OptionSpec* by_letter(char letter) {
  for (const OptionSpec& spec : option_specs()) {
    if (spec.letter == letter) return &spec;
  }
  return nullptr;
}

const OptionSpec& by_long_name(const std::string& name) {
  std::vector<std::string> matches;
  std::vector<std::string_view> known;
  const OptionSpec* found = nullptr;
  for (const OptionSpec& spec : option_specs()) {
    const std::string underscored = spec.underscored();
    if (name == spec.name || name == underscored) return spec;
    known.push_back(spec.name);
    if (spec.origin != OptionSpec::Origin::kTorchrun) continue;
    for (const std::string& spelling : {std::string(spec.name), underscored}) {
      if (!spelling.starts_with(name) || std::find(matches.begin(), matches.end(), "--" + spelling) != matches.end()) {
        continue;
      }
      matches.push_back("--" + spelling);
      found = &spec;
    }
  }
  if (matches.size() == 1) return *found;
  if (!matches.empty()) throw UsageError("ambiguous option: --{} could match {}", name, fmt::join(matches, ", "));
  std::string dashed = name;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  const std::string nearest = nearest_name(dashed, known);
  throw UsageError("unknown option --{}{}", name,
                   nearest.empty() ? "; see cxxrun --help" : fmt::format("; did you mean --{}?", nearest));
}

bool is_number(const std::string& text) {
  const size_t dot = text.find('.');
  const std::string digits = text.substr(1, dot - 1) + (dot == text.npos ? "" : text.substr(dot + 1));
  return text[0] == '-' && !digits.empty() &&
         std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c); });
}

// What argparse takes for an option: not "-", not a negative number, no blank in its name.
bool looks_like_option(const std::string& text) {
  return text.size() > 1 && text[0] == '-' && !is_number(text) && text.substr(0, text.find('=')).find(' ') == text.npos;
}

bool acts_at_once(const OptionSpec& spec) {
  return spec.name == "help" || spec.name == "version" || spec.name == "print-completion";
}

}  // namespace

SplitArguments split_arguments(const std::vector<std::string>& args) {
  SplitArguments split;
  size_t next = 0;
  bool dashes_dropped = false;

  auto take = [&](const OptionSpec& spec, std::string_view spelling, std::optional<std::string> value) {
    if (spec.kind == Kind::kFlag) {
      if (value) throw UsageError("{} takes no value, got '{}'", spelling, *value);
      value = "1";
    } else if (!value) {
      if (next == args.size() || looks_like_option(args[next])) throw UsageError("{} needs a value", spelling);
      value = args[next++];
    }
    if (!spec.choices.empty() && fmt::format(",{},", spec.choices).find(fmt::format(",{},", *value)) == std::string::npos) {
      throw UsageError("{}={} must be one of {}", spelling, *value, spec.choices);
    }
    split.options.emplace_back(&spec, *value);
  };

  while (next < args.size() && looks_like_option(args[next])) {
    if (!split.options.empty() && acts_at_once(*split.options.back().first)) return split;  // whatever follows
    const std::string text = args[next++];
    if (text == "--") {
      dashes_dropped = true;
      break;
    }
    if (text.starts_with("--")) {
      const size_t equals = text.find('=');
      const std::string name = text.substr(2, equals - 2);
      take(by_long_name(name), "--" + name,
           equals == text.npos ? std::nullopt : std::optional(text.substr(equals + 1)));
      continue;
    }
    for (size_t i = 1; i < text.size(); ++i) {  // -m, -t3, -t=3, -mr3
      const OptionSpec* spec = by_letter(text[i]);
      if (!spec) throw UsageError("unknown option -{}; see cxxrun --help", text.substr(i));
      const std::string spelling = {'-', text[i]};
      const size_t start = i + 1 < text.size() && text[i + 1] == '=' ? i + 2 : i + 1;
      if (spec->kind == Kind::kFlag && start == i + 1) {
        take(*spec, spelling, std::nullopt);
        continue;
      }
      take(*spec, spelling, i + 1 < text.size() ? std::optional(text.substr(start)) : std::nullopt);
      break;
    }
  }
  if (next < args.size()) split.program = args[next++];
  if (!dashes_dropped && next < args.size() && args[next] == "--") ++next;
  split.program_args.assign(args.begin() + static_cast<ptrdiff_t>(next), args.end());
  return split;
}

}  // namespace cxxrun
