#include "worker/optim/options.hpp"

#include <gmock/gmock.h>

#include "common/error.hpp"
#include "tests/support/message_of.hpp"

namespace vla {
namespace {

using testing::HasSubstr;

TEST(Precision, IsReadInEverySpelling) {
  const std::pair<const char*, const char*> spellings[] = {
      {"fp32", "fp32"},           {"no", "fp32"},         {"torch.float32", "fp32"}, {"tf32", "tf32"},
      {"bf16", "bf16-mixed"},     {"BF16", "bf16-mixed"}, {"bfp16", "bf16-mixed"},   {"torch.bfloat16", "bf16-mixed"},
      {"16-mixed", "fp16-mixed"}, {"FP16", "fp16-mixed"}, {"float16", "fp16-mixed"}, {"bf16_mixed", "bf16-mixed"},
      {"bf16-true", "bf16-true"}};
  for (const auto& [text, name] : spellings) EXPECT_EQ(parse_precision(text), name) << text;
  for (const std::string& name : precision_names()) EXPECT_EQ(parse_precision(name), name);
}

TEST(Precision, UnknownOnesNameKeyAndTheNearest) {
  const std::string message =
      cxxrun::message_of<cxxrun::UsageError>([] { parse_precision("bf16-mixd", "mixed_precision"); });
  EXPECT_THAT(message, HasSubstr("unknown mixed_precision 'bf16-mixd'"));
  EXPECT_THAT(message, HasSubstr("did you mean 'bf16-mixed'"));
}

}  // namespace
}  // namespace vla
