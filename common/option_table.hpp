// The one declaration of every option. A struct of options has its defaults at the members and a
// `void describe(cxxrun::OptionTable&)` beside them; from the table come YAML parsing, command-line overrides, validation,
// --help and the resolved dump. The table points into the structs: they must outlive it and not move.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cxxrun {

struct OptionRow {
  using Value = std::variant<bool*, int64_t*, double*, std::string*, std::vector<int64_t>*, std::vector<double>*, std::vector<std::string>*>;

  std::string name;  // dotted: "training.batch_size"
  Value value;
  std::string help;
  std::string unit = {};
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  // The only values allowed; of a path, words that are not paths ("auto").
  std::vector<std::string> choices = {};
  // Relative to the YAML file when it stands there, to the working directory on the command line; made absolute when it is
  // set. "none" and "scheme:rest" are no paths.
  bool is_path = false;
  bool is_transient = false;  // about this one start, not about the training: left out of dumps
  std::string word = {};  // an integer's special value is written so
  int64_t word_value = 0;
  std::string source = {};  // where the value came from: "configs/x.yaml:12", "command line"; empty = default

  OptionRow& at_least(double value) { minimum = value; return *this; }
  OptionRow& at_most(double value) { maximum = value; return *this; }
  OptionRow& in(std::string_view text) { unit = text; return *this; }
  OptionRow& one_of(std::vector<std::string> values) { choices = std::move(values); return *this; }
  OptionRow& path() { is_path = true; return *this; }
  OptionRow& transient() { is_transient = true; return *this; }
  OptionRow& or_word(std::string_view text, int64_t meaning) { word = text; word_value = meaning; return *this; }
};

class OptionTable {
 public:
  // Options of `options` get the prefix "name.".
  template <class Options>
  void section(std::string_view name, Options& options) {
    const std::string outer = prefix_;
    prefix_ += std::string(name) + ".";
    options.describe(*this);
    prefix_ = outer;
  }

  OptionRow& add(std::string_view name, OptionRow::Value value, std::string_view help) {
    rows_.push_back({.name = prefix_ + std::string(name), .value = value, .help = std::string(help)});
    return rows_.back();
  }
  template <class T>
  OptionRow& add(std::string_view name, T& member, std::string_view help) {
    return add(name, OptionRow::Value(&member), help);
  }

  // The row of a full dotted name, or nullptr.
  OptionRow* find(std::string_view name) {
    for (OptionRow& row : rows_) {
      if (row.name == name) return &row;
    }
    return nullptr;
  }

  const std::deque<OptionRow>& rows() const { return rows_; }
  std::deque<OptionRow>& rows() { return rows_; }

 private:
  std::string prefix_;
  std::deque<OptionRow> rows_;
};

}  // namespace cxxrun
