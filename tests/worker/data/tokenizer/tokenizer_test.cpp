#include "worker/data/tokenizer/tokenizer.hpp"

#include <thread>

#include "tests/worker/data/tokenizer/support.hpp"

namespace vla::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Tokenizer, ReadsIllFormedTextAsReplacementCharacters) {
  const Tokenizer tokenizer(kTokenizers + "smollm2.json");
  // What Python's bytes.decode(errors="replace") makes of them.
  const std::pair<std::string, std::string> cases[] = {
      {"a\x80z", "a\uFFFDz"},
      {"\xE0\x80", "\uFFFD\uFFFD"},
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xF0\x9F\x98", "\uFFFD"},
      {"\xF0\x9F\x98 x", "\uFFFD x"},
      {"\xC3", "\uFFFD"},
      {"\xC0\xAF", "\uFFFD\uFFFD"},
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"\xFF\xFE", "\uFFFD\uFFFD"},
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(tokenizer.encode(bytes), tokenizer.encode(text)) << text;
}

TEST(Tokenizer, GivesTextsBackThatAreNotNormalized) {
  const Tokenizer tokenizer(kTokenizers + "smollm2.json");
  for (const auto& text : read_golden("texts.json").get<std::vector<std::string>>())
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer tokenizer(kTokenizers + "smollm2.json");
  EXPECT_EQ(tokenizer.token_id("<|im_end|>"), 2);
  EXPECT_EQ(tokenizer.token_id("<row_2_col_2>"), tokenizer.vocab_size() - 1);
  EXPECT_EQ(tokenizer.token_id("no such token"), std::nullopt);
  EXPECT_THAT(tokenizer.encode("<image>"), ElementsAre(tokenizer.token_id("<image>").value()));
  EXPECT_EQ(tokenizer.decode(Ids{-1, 2, 1 << 20}), "<|im_end|>");
}

TEST(Tokenizer, LeavesSpecialTokensOutOnRequest) {
  const Tokenizer tokenizer(kTokenizers + "llama3.json");
  Ids ids = tokenizer.encode("reach");
  const Ids bare = tokenizer.encode("reach", false);
  EXPECT_EQ(ids.front(), tokenizer.token_id("<|begin_of_text|>"));
  EXPECT_EQ(ids.back(), tokenizer.token_id("<|end_of_text|>"));
  ids.pop_back();
  ids.erase(ids.begin());
  EXPECT_EQ(ids, bare);
}

TEST(Tokenizer, MergesLongWordsInReasonableTime) {
  const Tokenizer tokenizer(kTokenizers + "smollm2.json");
  std::string text;
  while (text.size() < 1 << 20) text += "pickupthecube";
  const Ids ids = tokenizer.encode(text);
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_LT(ids.size(), text.size() / 2);
}

TEST(Tokenizer, RefusesTextsOfUnreasonableLength) {
  const Tokenizer tokenizer(kTokenizers + "smollm2.json");
  EXPECT_THAT(message_of<cxxrun::Error>([&] { tokenizer.encode(std::string((16 << 20) + 1, 'a')); }),
              HasSubstr("16777216 bytes"));
  const Tokenizer growing = changed_tokenizer(
      {{"normalizer", {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'b')}}}});
  EXPECT_THAT(message_of<cxxrun::Error>([&] { growing.encode(std::string(1 << 20, 'a')); }), HasSubstr("too long"));
}

TEST(Tokenizer, ReplacesNoEmptyMatch) {
  // tokenizers 0.22.2 panics on some texts and doubles the replacement on others.
  const Tokenizer tokenizer =
      changed_tokenizer({{"normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "x*"}}}, {"content", "-"}}}});
  EXPECT_THAT(message_of<cxxrun::Error>([&] { tokenizer.encode("axb"); }), HasSubstr("an empty place"));
}

TEST(Tokenizer, GivesUpOnPatternsThatBacktrackWithoutEnd) {
  const Tokenizer tokenizer = changed_tokenizer({{"pre_tokenizer",
                                                  {{"type", "Split"},
                                                   {"pattern", {{"Regex", "(?:a|aa)+$"}}},
                                                   {"behavior", "Isolated"},
                                                   {"invert", false},
                                                   {"pretokenizers", nullptr}}}});
  EXPECT_THAT(message_of<cxxrun::Error>([&] { tokenizer.encode(std::string(60, 'a') + "b"); }),
              HasSubstr("a pattern of the tokenizer fails"));
}

TEST(Tokenizer, ServesThreadsAtOnce) {
  const Tokenizer tokenizer(kTokenizers + "qwen2.json");
  const auto texts = read_golden("texts.json").get<std::vector<std::string>>();
  std::vector<std::vector<Ids>> of_thread(4);
  std::vector<std::thread> threads;
  for (auto& all : of_thread) {
    threads.emplace_back([&] {
      for (size_t i = 0; i < texts.size(); i += 4) all.push_back(tokenizer.encode(texts[i]));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& all : of_thread) EXPECT_EQ(all, of_thread[0]);
}

TEST(TokenBatch, FramesMustFit) {
  const Tokenizer tokenizer(kTokenizers + "llama3.json");
  const std::string text = "reach";
  EXPECT_THAT(message_of<cxxrun::UsageError>([&] {
                tokenize_batch(tokenizer, {&text, 1}, 1, TokenPadding::kLongest, 0);
              }),
              HasSubstr("at most 1 tokens is too short for the 2"));
  EXPECT_THAT(message_of<cxxrun::UsageError>([&] {
                tokenize_batch(tokenizer, {&text, 1}, -3, TokenPadding::kLongest, 0);
              }),
              HasSubstr("-3"));
  EXPECT_EQ(tokenize_batch(tokenizer, {}, 8, TokenPadding::kLongest, 0).length, 0);
}

TEST(TokenBatch, FindsThePadTokenOfASmolVlm) {
  EXPECT_EQ(read_pad_id(Tokenizer(kData + "/tiny_smolvlm/tokenizer.json")), 2);
}

TEST(TokenBatch, GivesTheTokensThatLeRobotGivesToSmolVla) {
  const Tokenizer tokenizer(kData + "/tiny_smolvlm/tokenizer.json");
  const std::vector<std::string> tasks{"Reach a goal position\n", "Push the puck to a goal\n"};
  EXPECT_THAT(tokenize_batch(tokenizer, tasks, 48, TokenPadding::kLongest, 2).tokens,
              ElementsAre(303, 278, 74, 263, 298, 296, 335, 317, 201, 276, 286, 261, 365, 294, 263, 298, 201, 2));
}

TEST(TokenBatch, FindsThePadTokenBesideBesideTheTokenizer) {
  const TempDir folder;
  const Tokenizer tokenizer(write_tokenizer(folder, read_golden("smollm2.json")));
  EXPECT_THAT(message_of<cxxrun::DataError>([&] { read_pad_id(tokenizer); }), HasSubstr("names a \"pad_token\""));
  cxxrun::write_file_atomically(folder.path() + "/special_tokens_map.json",
                                R"({"pad_token": {"content": "<|im_end|>", "lstrip": false}})");
  EXPECT_EQ(read_pad_id(tokenizer), 2);
  cxxrun::write_file_atomically(folder.path() + "/tokenizer_config.json", R"({"pad_token": null})");
  EXPECT_EQ(read_pad_id(tokenizer), 2);
  cxxrun::write_file_atomically(folder.path() + "/tokenizer_config.json", R"({"pad_token": "<|endoftext|>"})");
  EXPECT_EQ(read_pad_id(tokenizer), 0);
  cxxrun::write_file_atomically(folder.path() + "/tokenizer_config.json", R"({"pad_token": "<nothing>"})");
  EXPECT_THAT(message_of<cxxrun::DataError>([&] { read_pad_id(tokenizer); }),
              HasSubstr("tokenizer_config.json: pad_token: the value \"<nothing>\""));
}

}  // namespace
}  // namespace vla::data
