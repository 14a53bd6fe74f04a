#include "worker/inference/protocol.hpp"

#include <gmock/gmock.h>

#include "common/error.hpp"
#include "tests/support/message_of.hpp"

namespace vla {
namespace {

using cxxrun::message_of;
using ::testing::HasSubstr;

std::string refusal(const std::string& header, size_t payload_bytes = 0) {
  return message_of<cxxrun::Error>([&] { parse_request(header, payload_bytes); });
}

std::string with_tensor(const std::string& tensor) { return R"({"op": "predict", "tensors": [)" + tensor + "]}"; }

TEST(Protocol, ReadsARequestAndWhereItsTensorsAre) {
  const Request request = parse_request(
      R"({"op": "predict", "reset": true, "task": "push", "tensors": [{"key": "a", "dtype": "uint8", "shape": [2, 3, 3]},
          {"key": "b", "dtype": "float32", "shape": [4]}]})", 34);
  EXPECT_EQ(request.op, Request::Op::kPredict);
  EXPECT_TRUE(request.reset);
  EXPECT_EQ(request.task, "push");
  ASSERT_EQ(request.tensors.size(), 2u);
  EXPECT_EQ(request.tensors[0].shape, (std::vector<int64_t>{2, 3, 3}));
  EXPECT_EQ(request.tensors[1].begin, 18u);
  EXPECT_EQ(request.tensors[1].bytes, 16u);
}

TEST(Protocol, NamesTheWrongKey) {
  EXPECT_THAT(refusal("{"), HasSubstr("no JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("no JSON object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("'op'"));
  EXPECT_THAT(refusal(R"({"op": "predikt"})"), HasSubstr("predikt"));
  EXPECT_THAT(refusal(R"({"op": 3})"), HasSubstr("'op' is 3"));
  EXPECT_THAT(refusal(R"({"op": "info", "rset": true})"), HasSubstr("did you mean 'reset'"));
  EXPECT_THAT(refusal(R"({"op": "predict", "reset": 1})"), HasSubstr("'reset'"));
  EXPECT_THAT(refusal(R"({"op": "predict", "task": null})"), HasSubstr("'task'"));
  EXPECT_THAT(refusal(R"({"op": "predict", "tensors": {}})"), HasSubstr("'tensors'"));
  EXPECT_THAT(refusal(with_tensor("7")), HasSubstr("'tensors'"));
  EXPECT_THAT(refusal(with_tensor(R"({"key": "a", "dtype": "int64", "shape": [1]})")), HasSubstr("'a': dtype 'int64'"));
  EXPECT_THAT(refusal(with_tensor(R"({"key": "a", "dtype": "uint8", "shape": []})")), HasSubstr("'a': shape"));
  EXPECT_THAT(refusal(with_tensor(R"({"key": "a", "dtype": "uint8", "shape": [1], "stride": 1})")), HasSubstr("'stride'"));
  EXPECT_THAT(refusal(with_tensor(R"({"key": "a", "dtype": "uint8", "shape": [1]}, {"key": "a", "dtype": "uint8", "shape": [1]})"), 2),
              HasSubstr("'a' is there twice"));
}

TEST(Protocol, RefusesSizesThatDoNotFitOrOverflow) {
  for (const char* shape : {"[-1]", "[0]", "[1.5]", "[1e30]", "[true]", "[9223372036854775807, 4]", "[67108864, 67108864, 67108864, 67108864]"}) {
    EXPECT_THAT(refusal(with_tensor(R"({"key": "a", "dtype": "float32", "shape": )" + std::string(shape) + "}")), HasSubstr("empty or too large"))
        << shape;
  }
  EXPECT_THAT(refusal(with_tensor(R"({"key": "a", "dtype": "float32", "shape": [4]})"), 15), HasSubstr("15 bytes"));
  EXPECT_THAT(refusal(R"({"op": "info"})", 1), HasSubstr("1 bytes"));
  EXPECT_THAT(refusal(std::string(60000, '[')), HasSubstr("nested too deeply"));
}

TEST(Protocol, WritesWhatItReads) {
  const std::string message = encode_message({{"ok", true}}, "abcd");
  const MessagePrefix prefix = read_prefix(message);
  EXPECT_EQ(message.size(), prefix.message_bytes());
  EXPECT_EQ(message.substr(kPrefixBytes), R"({"ok":true}abcd)");
}

TEST(Protocol, RefusesPrefixesOfOtherProtocolsAndAboveTheLimits) {
  const auto refused = [](std::string prefix) { return message_of<cxxrun::Error>([&] { read_prefix(prefix); }); };
  EXPECT_THAT(refused("GET / HTTP/1.1\r\n\r\n"), HasSubstr("VLA1"));
  EXPECT_THAT(refused("VLA2" + std::string(12, '\0')), HasSubstr("VLA1"));
  EXPECT_THAT(refused("VLA1"), HasSubstr("VLA1"));
  EXPECT_THAT(refused("VLA1" + std::string(4, '\xff') + std::string(8, '\0')), HasSubstr("header of 4294967295"));
  EXPECT_THAT(refused("VLA1" + std::string(4, '\0') + std::string(8, '\xff')), HasSubstr("payload of 18446744073709551615"));
}

TEST(Protocol, QuotesGarbageWithoutFailing) {
  EXPECT_NO_THROW(read_prefix(encode_message({{"error", "\xff\xfe"}})));
}

}  // namespace
}  // namespace vla
