#include "tests/worker/data/tokenizer/support.hpp"

namespace vla::data {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const json& change) {
  return message_of<cxxrun::DataError>([&] { changed_tokenizer(change); });
}

json split_by(const std::string& expression) {
  return {{"pre_tokenizer",
           {{"type", "Split"},
            {"pattern", {{"Regex", expression}}},
            {"behavior", "Isolated"},
            {"invert", false},
            {"pretokenizers", nullptr}}}};
}

TEST(DamagedTokenizer, IsRefusedWhereverItIsCut) {
  const TempDir folder;
  const std::string path = folder.path() + "/tokenizer.json", whole = cxxrun::read_file(kTokenizers + "smollm2.json");
  for (size_t size = 0; size + 2 < whole.size(); size += 97) {
    cxxrun::write_file_atomically(path, whole.substr(0, size));
    EXPECT_THAT(message_of<cxxrun::DataError>([&] { Tokenizer{path}; }), AllOf(HasSubstr(path), HasSubstr("damaged")));
  }
  EXPECT_THAT(message_of<cxxrun::DataError>([&] { Tokenizer{folder.path() + "/none.json"}; }),
              HasSubstr("cannot open"));
  cxxrun::write_file_atomically(path, std::string(1000, '[') + std::string(1000, ']'));
  EXPECT_THAT(message_of<cxxrun::DataError>([&] { Tokenizer{path}; }), HasSubstr("16 levels deep"));
  cxxrun::write_file_atomically(path, "[]");
  EXPECT_THAT(message_of<cxxrun::DataError>([&] { Tokenizer{path}; }), HasSubstr("expected an object"));
}

TEST(DamagedTokenizer, NamesWhatIsNotSupported) {
  EXPECT_THAT(refusal({{"model", {{"type", "Unigram"}}}}),
              AllOf(HasSubstr("tokenizer.json: model.type: the value \"Unigram\""), HasSubstr("expected BPE")));
  EXPECT_THAT(refusal({{"model", {{"type", "WordPiece"}}}}), HasSubstr("WordPiece"));
  EXPECT_THAT(refusal({{"model", {{"dropout", 0.1}}}}), HasSubstr("model.dropout: the value 0.1"));
  EXPECT_THAT(refusal({{"model", {{"surprise", 1}}}}), HasSubstr("model.surprise"));
  EXPECT_THAT(refusal({{"normalizer", {{"type", "Precompiled"}}}}),
              HasSubstr("normalizer.type: the value \"Precompiled\""));
  EXPECT_THAT(refusal({{"normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Nmt"}}}}}}}),
              HasSubstr("normalizer.normalizers[0].type"));
  EXPECT_THAT(refusal({{"pre_tokenizer", {{"type", "Metaspace"}}}}),
              HasSubstr("pre_tokenizer.type: the value \"Metaspace\""));
  EXPECT_THAT(refusal({{"post_processor", {{"type", "Other"}}}}), HasSubstr("post_processor.type"));
  EXPECT_THAT(refusal({{"decoder", {{"type", "WordPiece"}}}}), HasSubstr("decoder.type"));
  EXPECT_THAT(refusal({{"version", "2.0"}}), HasSubstr("version: the value \"2.0\""));
  EXPECT_THAT(refusal({{"new_key", true}}), HasSubstr("new_key"));
}

TEST(DamagedTokenizer, NamesValuesThatCannotBe) {
  EXPECT_THAT(refusal({{"model", {{"vocab", {{"Ġthe", -1}}}}}}), HasSubstr("model.vocab.Ġthe: the value -1"));
  EXPECT_THAT(refusal({{"model", {{"vocab", {{"Ġthe", 1e18}}}}}}), HasSubstr("model.vocab.Ġthe"));
  EXPECT_THAT(refusal({{"model", {{"vocab", {{"Ġthe", 4}}}}}}), HasSubstr("the number 4 to two tokens"));
  EXPECT_THAT(refusal({{"model", {{"vocab", {{"Ġthe", nullptr}}}}}}), HasSubstr("tokens of the vocabulary"));
  EXPECT_THAT(refusal({{"model", {{"merges", {"a b c"}}}}}), HasSubstr("model.merges: the value \"a b c\""));
  EXPECT_THAT(refusal({{"model", {{"merges", {{"a"}}}}}}), HasSubstr("expected two tokens"));
  EXPECT_THAT(refusal({{"model", {{"merges", json::array({json::array({"qqq", "b"})})}}}}),
              HasSubstr("tokens of the vocabulary"));
  EXPECT_THAT(refusal({{"model", {{"unk_token", "qqq"}}}}), HasSubstr("model.unk_token"));
  EXPECT_THAT(refusal({{"model", {{"fuse_unk", 1}}}}), HasSubstr("model.fuse_unk"));
  EXPECT_THAT(refusal({{"added_tokens", 5}}), HasSubstr("added_tokens"));
  EXPECT_THAT(refusal({{"post_processor", {{"type", "BertProcessing"}, {"sep", {"x", 100000}}, {"cls", {"y", 0}}}}}),
              HasSubstr("post_processor.sep[1]: the value 100000"));
  EXPECT_THAT(refusal({{"post_processor", {{"type", "TemplateProcessing"}, {"single", json::array()}}}}),
              HasSubstr("post_processor.single"));
  EXPECT_THAT(
      refusal({{"pre_tokenizer", {{"type", "Digits"}, {"individual_digits", "yes"}, {"pretokenizers", nullptr}}}}),
      HasSubstr("individual_digits: the value \"yes\""));
}

TEST(DamagedTokenizer, NamesAddedTokensOfOtherNumbersThanTheLibraryGives) {
  json tokens = read_golden("smollm2.json")["added_tokens"];
  const auto with = [&](size_t row, const char* key, const json& value) {
    json changed = tokens;
    changed[row][key] = value;
    return refusal({{"added_tokens", changed}});
  };
  EXPECT_THAT(with(0, "id", 3), HasSubstr("added_tokens[0].id: the value 3 is not supported, expected 0"));
  EXPECT_THAT(with(5, "id", 5000), HasSubstr("added_tokens[5].id"));
  EXPECT_THAT(with(1, "content", ""), HasSubstr("added_tokens[1].content"));
  EXPECT_THAT(with(1, "content", "<image>"), HasSubstr("expected 600"));
  EXPECT_THAT(with(4, "content", "<image>"), HasSubstr("another text"));
  EXPECT_THAT(with(1, "lstrip", nullptr), HasSubstr("added_tokens[1].lstrip"));
}

TEST(TextPattern, RefusesWhatIcuWouldReadOtherwise) {
  for (const char* expression :
       {"\\b",          "\\Qx\\E", "a{1,3}+",    "a(?i)b|c", "(?m:.)", "[[:alpha:]]", "[]a]",
        "[a-\\d]",      "\\g<1>",  "(?<n>a)",    "a{,3}",    "\\",     "[a",          "(",
        "\\p{Nothing}", "\\pL",    "\\p{Punct}", "\\xE9",    "\\x{",   "\\0",         "(?<=a+)b"}) {
    EXPECT_THAT(refusal(split_by(expression)), HasSubstr("pre_tokenizer.pattern")) << expression;
  }
  EXPECT_THAT(refusal(split_by(std::string(5000, 'a'))), HasSubstr("a shorter pattern"));
}

}  // namespace
}  // namespace vla::data
