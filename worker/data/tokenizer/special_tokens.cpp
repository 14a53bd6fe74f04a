#include "worker/data/tokenizer/special_tokens.hpp"

#include "common/error.hpp"
#include "worker/data/tokenizer/json_node.hpp"

namespace vla::data {
namespace {

class Reader {
 public:
  explicit Reader(int64_t vocab_size) : vocab_size_(vocab_size) {}

  // Each processor frames what those before it made.
  void add(const JsonNode& node) {
    const std::string type = node.type();
    if (type == "Sequence") {
      node.allow_keys({"type", "processors"});
      for (const JsonNode& part : node["processors"].list()) add(part);
    } else if (type == "TemplateProcessing") {
      node.allow_keys({"type", "single", "pair", "special_tokens"});
      add_template(node);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      node.allow_keys({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
      frame({named_id(node["cls"])}, {named_id(node["sep"])});
    } else if (type == "ByteLevel") {  // changes offsets only
      node.allow_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    } else {
      node["type"].refuse("TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel or Sequence");
    }
  }

  SpecialTokens tokens;

 private:
  int64_t id_of(const JsonNode& node) const {
    if (node.id() >= vocab_size_) node.refuse(fmt::format("a number below {}", vocab_size_));
    return node.id();
  }

  int64_t named_id(const JsonNode& node) const {
    const std::vector<JsonNode> parts = node.list();
    if (parts.size() != 2) node.refuse("[token, number]");
    return id_of(parts[1]);
  }

  void frame(std::vector<int64_t> before, const std::vector<int64_t>& after) {
    before.insert(before.end(), tokens.before.begin(), tokens.before.end());
    tokens.before = std::move(before);
    tokens.after.insert(tokens.after.end(), after.begin(), after.end());
    if (tokens.before.size() + tokens.after.size() > 1024)
      throw cxxrun::DataError("the post_processor of a tokenizer adds more than 1024 tokens");
  }

  void add_template(const JsonNode& node) {
    SpecialTokens frame_tokens;
    bool is_behind = false;
    for (const JsonNode& piece : node["single"].list()) {
      piece.allow_keys({"SpecialToken", "Sequence"});
      if (!piece["Sequence"].is_null()) {
        if (is_behind || piece["Sequence"]["id"].text() != "A") piece.refuse("the sequence A once");
        is_behind = true;
        continue;
      }
      const JsonNode name = piece["SpecialToken"]["id"];
      for (const JsonNode& id : node["special_tokens"][name.text().c_str()]["ids"].list()) {
        (is_behind ? frame_tokens.after : frame_tokens.before).push_back(id_of(id));
      }
    }
    if (!is_behind) node["single"].refuse("the sequence A once");
    frame(std::move(frame_tokens.before), frame_tokens.after);
  }

  int64_t vocab_size_;
};

}  // namespace

SpecialTokens read_special_tokens(const JsonNode& node, int64_t vocab_size) {
  Reader reader(vocab_size);
  if (!node.is_null()) reader.add(node);
  return std::move(reader.tokens);
}

}  // namespace vla::data
