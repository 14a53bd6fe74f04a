#include "worker/data/tokenizer/pre_tokenizer.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "worker/data/tokenizer/byte_alphabet.hpp"
#include "worker/data/tokenizer/json_node.hpp"
#include "worker/data/tokenizer/text_pattern.hpp"

namespace vla::data {
namespace {

using Pieces = std::vector<std::string>;

constexpr std::string_view kDigit = "\\p{N}";
// The library's table of punctuation is that of Unicode 8.
constexpr std::string_view kPunctuation = "[[\\p{P}&&\\p{Age=8.0}]\\u166D$+<=>\\^`|~]";
constexpr std::string_view kSpace = "\\p{White_Space}";
constexpr std::string_view kWordOrSigns = "\\w+|[^\\w\\p{White_Space}]+";
// How GPT-2 splits before it merges.
constexpr std::string_view kGpt2 =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "
    "?[^\\p{White_Space}\\p{L}\\p{N}]+|\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+";

enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Behavior to_behavior(const JsonNode& node) {
  static constexpr std::pair<std::string_view, Behavior> kNames[] = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  const std::string text = node.text();
  for (const auto& [name, behavior] : kNames) {
    if (name == text) return behavior;
  }
  node.refuse("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

// A match joins its neighbour unless that is a match as well. `spans` in the order in which the neighbour comes first.
void merge_matches(std::vector<Span>& spans) {
  std::vector<Span> merged;
  bool after_match = false;
  for (const Span& span : spans) {
    if (span.is_match && !after_match && !merged.empty()) {
      merged.back().begin = std::min(merged.back().begin, span.begin);
      merged.back().end = std::max(merged.back().end, span.end);
    } else {
      merged.push_back(span);
    }
    after_match = span.is_match;
  }
  spans = std::move(merged);
}

void join_alike(std::vector<Span>& spans) {
  std::vector<Span> joined;
  for (const Span& span : spans) {
    if (!joined.empty() && joined.back().is_match == span.is_match) {
      joined.back().end = span.end;
    } else {
      joined.push_back(span);
    }
  }
  spans = std::move(joined);
}

void split(const TextPattern& pattern, Behavior behavior, bool invert, std::string_view piece, Pieces& pieces) {
  std::vector<Span> spans = pattern.spans(piece);
  for (Span& span : spans) span.is_match ^= invert;
  if (behavior == Behavior::kMergedWithPrevious) merge_matches(spans);
  if (behavior == Behavior::kContiguous) join_alike(spans);
  if (behavior == Behavior::kMergedWithNext) {
    std::reverse(spans.begin(), spans.end());
    merge_matches(spans);
    std::reverse(spans.begin(), spans.end());
  }
  for (const Span& span : spans) {
    const bool is_dropped = span.begin == span.end || (span.is_match && behavior == Behavior::kRemoved);
    if (!is_dropped) pieces.emplace_back(piece.substr(span.begin, span.end - span.begin));
  }
}

}  // namespace

PreTokenizer::PreTokenizer(const JsonNode& node) {
  if (!node.is_null()) add(node);
}

void PreTokenizer::add(const JsonNode& node) {
  const auto add_split = [this](TextPattern pattern, Behavior behavior, bool invert = false) {
    steps_.push_back([=](std::string_view piece, Pieces& pieces) { split(pattern, behavior, invert, piece, pieces); });
  };
  const std::string type = node.type();
  if (type == "Sequence") {
    node.allow_keys({"type", "pretokenizers"});
    for (const JsonNode& part : node["pretokenizers"].list()) add(part);
  } else if (type == "ByteLevel") {
    node.allow_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    if (node.flag_or("add_prefix_space", true)) {
      steps_.push_back([](std::string_view piece, Pieces& pieces) {
        pieces.push_back(fmt::format("{}{}", piece.starts_with(' ') ? "" : " ", piece));
      });
    }
    if (node.flag_or("use_regex", true)) add_split(TextPattern(kGpt2), Behavior::kIsolated);
    steps_.push_back([](std::string_view piece, Pieces& pieces) { pieces.push_back(to_byte_alphabet(piece)); });
  } else if (type == "Digits") {
    node.allow_keys({"type", "individual_digits"});
    add_split(TextPattern(kDigit),
              node.flag_or("individual_digits", false) ? Behavior::kIsolated : Behavior::kContiguous);
  } else if (type == "Split") {
    node.allow_keys({"type", "pattern", "behavior", "invert"});
    add_split(TextPattern(node["pattern"]), to_behavior(node["behavior"]), node.flag_or("invert", false));
  } else if (type == "Punctuation") {
    node.allow_keys({"type", "behavior"});
    add_split(TextPattern(kPunctuation),
              node["behavior"].is_null() ? Behavior::kIsolated : to_behavior(node["behavior"]));
  } else if (type == "Whitespace") {
    node.allow_keys({"type"});
    add_split(TextPattern(kWordOrSigns), Behavior::kRemoved, true);
  } else if (type == "WhitespaceSplit") {
    node.allow_keys({"type"});
    add_split(TextPattern(kSpace), Behavior::kRemoved);
  } else {
    node["type"].refuse("ByteLevel, Digits, Split, Punctuation, Whitespace, WhitespaceSplit or Sequence");
  }
}

std::vector<std::string> PreTokenizer::operator()(std::string text) const {
  Pieces pieces;
  pieces.push_back(std::move(text));
  for (const Step& step : steps_) {
    Pieces next;
    size_t bytes = 0;
    for (const std::string& piece : pieces) {
      const size_t first = next.size();
      step(piece, next);
      for (size_t i = first; i < next.size(); ++i) bytes += next[i].size();
      require_bounded(bytes / 2);  // the alphabet of bytes takes two for one
    }
    pieces = std::move(next);
  }
  return pieces;
}

}  // namespace vla::data
