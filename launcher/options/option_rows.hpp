// The one declaration of cxxrun's command line: names, kinds, defaults and help. The splitter, the PET_* variables, the
// typed values, "did you mean" and --help all come from these rows. Const data.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace cxxrun {

struct OptionSpec {
  enum class Kind { kFlag, kText, kInteger, kNumber };
  enum class Origin {
    kTorchrun,
    kOwn,  // cxxrun's only: no abbreviations and no PET_ variable, so torchrun's rules stay as they are
    kAccelerate,  // accelerate's spellings of the same things; treated like our own
  };

  std::string_view name;  // with dashes; the spelling with underscores is an alias
  char letter = 0;
  Kind kind = Kind::kText;
  Origin origin = Origin::kTorchrun;
  std::string_view fallback = "";  // default, in the notation of the command line; "" = unset
  std::string_view help = "";
  std::string_view choices = "";  // "a,b"; asked of the command line only, as argparse does
  bool has_variable = true;  // PET_<NAME>

  std::string underscored() const;
  std::string variable() const;  // PET_NPROC_PER_NODE; "" when there is none
};

std::span<const OptionSpec> option_specs();

}  // namespace cxxrun
