#include "tests/worker/data/tokenizer/support.hpp"

namespace vla::data {
namespace {

using nlohmann::json;

// Some of what differs, so that a failure says more than a number.
void expect_same(const Tokenizer& tokenizer, const json& texts, size_t first, size_t every, const json& expected) {
  int shown = 0, wrong = 0;
  size_t compared = 0;
  for (size_t i = first; i < texts.size(); i += every, ++compared) {
    ASSERT_LT(compared, expected.size());
    const Ids ids = tokenizer.encode(texts[i].get<std::string>());
    if (ids == expected[compared].get<Ids>()) continue;
    ++wrong;
    if (++shown <= 3)
      ADD_FAILURE() << texts[i].dump(-1, ' ', true) << "\n is " << json(ids) << "\n not " << expected[compared];
  }
  EXPECT_EQ(compared, expected.size());
  EXPECT_EQ(wrong, 0) << "of " << compared;
}

class TokenizerGolden : public testing::TestWithParam<std::string> {
 protected:
  const std::string& name_ = GetParam();
  const Tokenizer tokenizer_{kTokenizers + name_ + ".json"};
  const json expected_ = read_golden(name_ + "_expected.json");
};

TEST_P(TokenizerGolden, EncodesAsTheLibrary) {
  const json texts = read_golden("texts.json");
  ASSERT_GT(texts.size(), 2000U);
  expect_same(tokenizer_, texts, 0, expected_["every"], expected_["ids"]);
}

TEST_P(TokenizerGolden, DecodesAsTheLibrary) {
  ASSERT_GT(expected_["decode"].size(), 100U);
  for (const json& row : expected_["decode"]) {
    const auto ids = row["ids"].get<Ids>();
    EXPECT_EQ(tokenizer_.decode(ids), row["text"].get<std::string>()) << row["ids"];
    EXPECT_EQ(tokenizer_.decode(ids, true), row["plain"].get<std::string>()) << row["ids"];
  }
}

using TokenizerBatches = TokenizerGolden;

TEST_P(TokenizerBatches, AreThoseOfTransformers) {
  const int64_t pad = tokenizer_.token_id(name_ == "smollm2" ? "<|im_end|>" : "<pad>").value();
  for (const json& row : expected_["batches"]) {
    const auto texts = row["texts"].get<std::vector<std::string>>();
    const auto padding = row["padding"] == "longest" ? TokenPadding::kLongest : TokenPadding::kMaxLength;
    const TokenBatch batch = tokenize_batch(tokenizer_, texts, row["max_length"], padding, pad);
    Ids tokens;
    std::vector<uint8_t> mask;
    for (const json& ids : row["tokens"]) tokens.insert(tokens.end(), ids.begin(), ids.end());
    for (const json& of_row : row["mask"]) mask.insert(mask.end(), of_row.begin(), of_row.end());
    EXPECT_EQ(batch.rows, static_cast<int64_t>(texts.size()));
    EXPECT_EQ(batch.length, static_cast<int64_t>(row["tokens"][0].size()));
    EXPECT_EQ(batch.tokens, tokens) << row["max_length"] << row["padding"];
    EXPECT_EQ(batch.mask, mask);
  }
}

std::string name_of(const testing::TestParamInfo<std::string>& info) { return info.param; }

INSTANTIATE_TEST_SUITE_P(, TokenizerGolden, testing::Values("smollm2", "qwen2", "gpt2", "llama3", "gemma", "odd"),
                         name_of);
INSTANTIATE_TEST_SUITE_P(, TokenizerBatches, testing::Values("smollm2", "llama3"), name_of);

TEST(TokenizerVariants, EncodeAsTheLibrary) {
  const json texts = read_golden("texts.json"), base = read_golden("smollm2.json");
  for (const json& variant : read_golden("variants.json")) {
    SCOPED_TRACE(variant["name"]);
    const TempDir folder;
    json content = base;
    content.update(variant["change"]);
    expect_same(Tokenizer(write_tokenizer(folder, content)), texts, variant["first"], variant["every"], variant["ids"]);
  }
}

}  // namespace
}  // namespace vla::data
