// The wire format of c10d's TCPStore: one table of operations drives the decoder and the encoder. Little-endian; text
// is a u64 length and its bytes. The decoder trusts nothing: it takes bytes in any portions, allocates no more than
// arrived, and throws Error at an unknown operation or a size above the limits. It also reads the dialect of torch
// 1.13, whose clients do not begin with VALIDATE. No I/O here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cxxrun {

enum class StoreOp : uint8_t {
  kValidate,
  kSet,
  kCompareSet,
  kGet,
  kAdd,
  kCheck,
  kWait,
  kNumKeys,
  kDeleteKey,
  kAppend,
  kMultiGet,
  kMultiSet,
  kCancelWait,
  kPing,
  kQueuePush,
  kQueuePop,
  kQueueLen,
  kListKeys,
  kBarrier,
};
inline constexpr int kStoreOpCount = static_cast<int>(StoreOp::kBarrier) + 1;

inline constexpr uint32_t kStoreMagic = 0x3C85F7CE;
inline constexpr uint8_t kCheckReady = 0, kCheckNotReady = 1;
inline constexpr uint8_t kStopWaiting = 0, kWaitCancelled = 1;
inline constexpr std::string_view kAgentStoreRemedy =
    "--agent-store=off lets rank 0 host the store instead of the launcher";

struct StoreRequest {
  StoreOp op = StoreOp::kPing;
  std::vector<std::string> keys = {};
  std::vector<std::string> values = {};  // COMPARE_SET: expected, desired
  int64_t number = 0;  // ADD: delta; BARRIER: world size; VALIDATE: magic; PING: nonce

  bool operator==(const StoreRequest&) const = default;
};

struct StoreLimits {
  size_t key_bytes = size_t{1} << 20;
  size_t request_bytes = size_t{1} << 30;
  size_t items = size_t{1} << 17;  // keys of one request
};

std::string_view store_op_name(StoreOp op);

void encode(const StoreRequest& request, std::string& out);

template <class Integer>
void append_number(std::string& out, Integer value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

inline void append_text(std::string& out, std::string_view text) {
  append_number(out, uint64_t{text.size()});
  out += text;
}

class StoreDecoder {
 public:
  explicit StoreDecoder(StoreLimits limits = {}) : limits_(limits) {}

  // Takes bytes from the front of `input`: up to the end of one request, which it returns, or all of them.
  std::optional<StoreRequest> decode(std::string_view& input);

  // Memory that the unfinished request occupies.
  size_t held_bytes() const { return held_bytes_; }

 private:
  enum class Dialect { kUnknown, kCurrent, kTorch113 };

  bool choose_dialect(std::string_view& input);
  std::optional<StoreRequest> decode_fields(std::string_view& input);
  bool take_number(std::string_view& input, size_t width, uint64_t& number);
  bool take_text(std::string_view& input, char kind);
  void begin_request(uint8_t op_byte);
  void begin_text(char kind, uint64_t length);
  void next_field();

  StoreLimits limits_;
  Dialect dialect_ = Dialect::kUnknown;
  std::string head_;  // bytes that came before the dialect was clear
  std::string scratch_;  // bytes of an unfinished number
  bool in_request_ = false;
  bool in_text_ = false;
  StoreRequest request_;
  std::string_view fields_;
  size_t field_ = 0;
  uint64_t rounds_left_ = 1;
  uint64_t text_left_ = 0;
  std::string text_;
  size_t announced_bytes_ = 0;
  size_t held_bytes_ = 0;
};

}  // namespace cxxrun
