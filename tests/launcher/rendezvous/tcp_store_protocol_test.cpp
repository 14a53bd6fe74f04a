#include "launcher/rendezvous/tcp_store_protocol.hpp"

#include <gmock/gmock.h>

#include <random>

#include "common/error.hpp"

namespace cxxrun {
namespace {

using testing::HasSubstr;
using testing::Property;
using testing::ThrowsMessage;

std::string prologue() { return std::string("\x00\xCE\xF7\x85\x3C", 5); }

std::string encoded(const StoreRequest& request) {
  std::string bytes;
  encode(request, bytes);
  return bytes;
}

// One request of every operation, with what may be awkward in its fields.
std::vector<StoreRequest> samples() {
  const std::string binary("\0\xff\r\n", 4);
  return {
      {StoreOp::kValidate, {}, {}, kStoreMagic},
      {StoreOp::kSet, {"/key"}, {binary}},
      {StoreOp::kCompareSet, {"/key"}, {"", "desired"}},
      {StoreOp::kGet, {""}},
      {StoreOp::kAdd, {"init/"}, {}, -3},
      {StoreOp::kCheck, {"a", "b"}},
      {StoreOp::kWait},
      {StoreOp::kNumKeys},
      {StoreOp::kDeleteKey, {"a"}},
      {StoreOp::kAppend, {"a"}, {std::string(100'000, 'x')}},
      {StoreOp::kMultiGet, {"a", "", "c"}},
      {StoreOp::kMultiSet, {"a", "b"}, {"1", ""}},
      {StoreOp::kCancelWait},
      {StoreOp::kPing, {}, {}, 0xFFFFFFFF},
      {StoreOp::kQueuePush, {"q"}, {"v"}},
      {StoreOp::kQueuePop, {"q"}},
      {StoreOp::kQueueLen, {"q"}},
      {StoreOp::kListKeys},
      {StoreOp::kBarrier, {"b"}, {}, 4},
  };
}

StoreDecoder decoder_after_prologue(StoreLimits limits = {}) {
  StoreDecoder decoder(limits);
  const std::string bytes = prologue();
  std::string_view input = bytes;
  EXPECT_TRUE(decoder.decode(input).has_value());
  return decoder;
}

auto decoding(std::string bytes, StoreLimits limits = {}) {
  return [bytes, limits] {
    StoreDecoder decoder = decoder_after_prologue(limits);
    std::string_view input = bytes;
    while (!input.empty()) decoder.decode(input);
  };
}

TEST(StoreProtocol, EncodesAsLibTorchDoes) {
  EXPECT_EQ(encoded({StoreOp::kValidate, {}, {}, kStoreMagic}), prologue());
  EXPECT_EQ(encoded({StoreOp::kSet, {"/k"}, {"v"}}), std::string("\x01\x02\0\0\0\0\0\0\0/k\x01\0\0\0\0\0\0\0v", 20));
  EXPECT_EQ(encoded({StoreOp::kPing, {}, {}, 258}), std::string("\x0D\x02\x01\0\0", 5));
  EXPECT_EQ(encoded({StoreOp::kBarrier, {"b"}, {}, 1})[0], 18);
}

TEST(StoreProtocol, EveryOperationSurvivesEncodingAndDecoding) {
  ASSERT_EQ(samples().size(), size_t{kStoreOpCount});
  StoreDecoder decoder = decoder_after_prologue();
  for (const StoreRequest& sample : samples()) {
    const std::string bytes = encoded(sample);
    std::string_view input = bytes;
    const auto request = decoder.decode(input);
    ASSERT_TRUE(request.has_value()) << store_op_name(sample.op);
    EXPECT_EQ(*request, sample) << store_op_name(sample.op);
    EXPECT_TRUE(input.empty());
    EXPECT_EQ(decoder.held_bytes(), 0u);
  }
}

TEST(StoreProtocol, ARequestMayBeCutAnywhere) {
  for (StoreRequest sample : samples()) {
    for (auto& value : sample.values) value.resize(std::min<size_t>(value.size(), 20));
    const std::string bytes = prologue() + encoded(sample);
    for (size_t cut = 0; cut < bytes.size(); ++cut) {
      StoreDecoder decoder;
      std::string_view first = std::string_view(bytes).substr(0, cut), second = std::string_view(bytes).substr(cut);
      std::vector<StoreRequest> requests;
      for (std::string_view* part : {&first, &second}) {
        while (!part->empty()) {
          if (auto request = decoder.decode(*part)) requests.push_back(*request);
        }
      }
      ASSERT_EQ(requests.size(), 2u) << store_op_name(sample.op) << " cut at " << cut;
      EXPECT_EQ(requests[1], sample);
    }
  }
}

TEST(StoreProtocol, ATruncatedRequestIsNotARequest) {
  for (const StoreRequest& sample : samples()) {
    const std::string bytes = encoded(sample).substr(0, encoded(sample).size() - 1);
    StoreDecoder decoder = decoder_after_prologue();
    std::string_view input = bytes;
    EXPECT_FALSE(decoder.decode(input).has_value()) << store_op_name(sample.op);
    EXPECT_TRUE(input.empty());
  }
}

TEST(StoreProtocol, RequestsInOnePortionComeOneByOne) {
  std::string bytes = prologue();
  for (const StoreRequest& sample : samples()) encode(sample, bytes);
  StoreDecoder decoder;
  std::string_view input = bytes;
  size_t count = 0;
  while (!input.empty()) count += decoder.decode(input).has_value();
  EXPECT_EQ(count, samples().size() + 1);
}

TEST(StoreProtocol, AnUnknownOperationIsNamedWithTheRemedy) {
  for (const int op : {19, 100, 255}) {
    EXPECT_THAT(decoding(std::string(1, static_cast<char>(op))),
                ThrowsMessage<Error>(
                    testing::AllOf(HasSubstr(fmt::format("operation {} ", op)), HasSubstr("--agent-store=off"))));
  }
}

TEST(StoreProtocol, OversizedRequestsFailBeforeTheirBytesCome) {
  std::string key = "\x01", value = "\x01", items = "\x0A";
  append_number(key, uint64_t{(1 << 20) + 1});
  append_text(value, "k");
  append_number(value, ~uint64_t{0});
  append_number(items, uint64_t{(1 << 17) + 1});
  EXPECT_THAT(decoding(key), ThrowsMessage<Error>(HasSubstr("SET with a key of 1048577 bytes")));
  EXPECT_THAT(decoding(value), ThrowsMessage<Error>(HasSubstr("18446744073709551615 bytes")));
  EXPECT_THAT(decoding(items), ThrowsMessage<Error>(HasSubstr("MULTI_GET of 131073 keys")));
}

TEST(StoreProtocol, ManySmallKeysTogetherMeetTheLimitOfARequest) {
  StoreRequest request{StoreOp::kMultiGet, std::vector<std::string>(100, "key")};
  EXPECT_NO_THROW(decoding(encoded(request), {.request_bytes = 10'000})());
  EXPECT_THAT(decoding(encoded(request), {.request_bytes = 1'000}), ThrowsMessage<Error>(HasSubstr("limit of 1000")));
}

TEST(StoreProtocol, AnAnnouncedSizeAllocatesNothing) {
  std::string bytes = "\x01";
  append_text(bytes, "k");
  append_number(bytes, uint64_t{900} << 20);
  StoreDecoder decoder = decoder_after_prologue();
  std::string_view input = bytes;
  EXPECT_FALSE(decoder.decode(input).has_value());
  EXPECT_LT(decoder.held_bytes(), 1000u);
}

TEST(StoreProtocol, AWrongMagicNumberIsRefused) {
  std::string bytes = encoded({StoreOp::kValidate, {}, {}, 7});
  EXPECT_THAT(decoding(bytes), ThrowsMessage<Error>(HasSubstr("not a TCPStore client")));
  StoreDecoder first;  // as the first request it reads as a key of 8 TiB in torch 1.13's dialect
  bytes += std::string(8, '\x7f');
  std::string_view input = bytes;
  EXPECT_THROW(first.decode(input), Error);
}

TEST(StoreProtocol, Torch113ClientsAreUnderstood) {
  struct Row {
    char byte;
    StoreRequest request;
  };
  const Row rows[] = {
      {0, {StoreOp::kSet, {"/a"}, {"1"}}},
      {1, {StoreOp::kCompareSet, {"/a"}, {"", "2"}}},
      {2, {StoreOp::kGet, {"/a"}}},
      {3, {StoreOp::kAdd, {"init/"}, {}, 1}},
      {4, {StoreOp::kCheck, {"/a"}}},
      {5, {StoreOp::kWait, {"/a"}}},
      {6, {StoreOp::kNumKeys}},
      {8, {StoreOp::kDeleteKey, {"/a"}}},
  };
  for (const Row& first : rows) {
    StoreDecoder decoder;
    for (const Row& row : {first, rows[3]}) {
      std::string bytes = encoded(row.request);
      bytes[0] = row.byte;
      std::string_view input = bytes;
      const auto request = decoder.decode(input);
      ASSERT_TRUE(request.has_value()) << int{row.byte};
      EXPECT_EQ(*request, row.request);
    }
  }
}

TEST(StoreProtocol, WhatIsNoStoreClientIsToldFromANewerOne) {
  StoreDecoder decoder;
  std::string_view input = "GET / HTTP/1.1\r\n";
  EXPECT_THAT([&] { decoder.decode(input); }, ThrowsMessage<Error>(HasSubstr("not a TCPStore client")));
}

TEST(StoreProtocol, RandomBytesNeverCrash) {
  std::mt19937 random(7);
  int errors = 0;
  for (int round = 0; round < 20'000; ++round) {
    StoreDecoder decoder(round % 2 ? StoreLimits{} : StoreLimits{.key_bytes = 40, .request_bytes = 200, .items = 5});
    std::string bytes = round % 3 ? prologue() : "";
    for (int i = 0; i < 60; ++i) bytes += static_cast<char>(random() % 4 ? random() % 20 * (random() % 2) : random());
    std::string_view input = bytes;
    try {
      while (!input.empty()) decoder.decode(input);
    } catch (const Error&) {
      ++errors;
    }
  }
  EXPECT_GT(errors, 1000);
}

}  // namespace
}  // namespace cxxrun
