#include "worker/data/tokenizer/normalizer.hpp"

#include "common/error.hpp"
#include "worker/data/tokenizer/json_node.hpp"
#include "worker/data/tokenizer/text_pattern.hpp"
#include "worker/data/tokenizer/unicode.hpp"

namespace vla::data {
namespace {

using Step = std::function<std::string(std::string)>;

template <NormalForm kForm>
Step make_form(const JsonNode& node) {
  node.allow_keys({"type"});
  return [](std::string text) { return normalize(std::move(text), kForm); };
}

Step make_lowercase(const JsonNode& node) {
  node.allow_keys({"type"});
  return [](std::string text) { return lowercase(text); };
}

Step make_strip(const JsonNode& node) {
  node.allow_keys({"type", "strip_left", "strip_right"});
  return [left = node.flag("strip_left"), right = node.flag("strip_right")](std::string text) {
    if (right) text.resize(text.size() - trailing_space(text));
    if (left) text.erase(0, leading_space(text));
    return text;
  };
}

Step make_replace(const JsonNode& node) {
  node.allow_keys({"type", "pattern", "content"});
  return [pattern = TextPattern(node["pattern"]), content = node["content"].text()](std::string text) {
    return replace_matches(pattern, text, content);
  };
}

Step make_prepend(const JsonNode& node) {
  node.allow_keys({"type", "prepend"});
  return [prefix = node["prepend"].text()](std::string text) { return text.empty() ? text : prefix + text; };
}

struct Kind {
  std::string_view type;
  Step (*make)(const JsonNode&);
};

constexpr Kind kKinds[] = {
    {"NFC", make_form<NormalForm::kNfc>},
    {"NFD", make_form<NormalForm::kNfd>},
    {"NFKC", make_form<NormalForm::kNfkc>},
    {"NFKD", make_form<NormalForm::kNfkd>},
    {"Lowercase", make_lowercase},
    {"Strip", make_strip},
    {"Replace", make_replace},
    {"Prepend", make_prepend},
};

}  // namespace

Normalizer::Normalizer(const JsonNode& node) {
  if (!node.is_null()) add(node);
}

void Normalizer::add(const JsonNode& node) {
  const std::string type = node.type();
  if (type == "Sequence") {
    node.allow_keys({"type", "normalizers"});
    for (const JsonNode& part : node["normalizers"].list()) add(part);
    return;
  }
  for (const Kind& kind : kKinds) {
    if (kind.type == type) return steps_.push_back(kind.make(node));
  }
  node["type"].refuse("NFC, NFD, NFKC, NFKD, Lowercase, Strip, Replace, Prepend or Sequence");
}

std::string Normalizer::operator()(std::string text) const {
  for (const Step& step : steps_) {
    text = step(std::move(text));
    require_bounded(text.size());
  }
  return text;
}

}  // namespace vla::data
