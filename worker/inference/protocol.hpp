// The wire format of `vla_worker serve`, version 1: what bytes mean, without sockets and without Torch. A message, in either
// direction, is
//   "VLA1" | uint32 header bytes | uint64 payload bytes | header: JSON, UTF-8 | payload: tensors, row-major, one after the other
// with little-endian integers and floats. Requests are untrusted: everything is bounded before it is used, and cxxrun::Error says
// which key is wrong.
//
//   {"op": "info"}                                          what the policy is and needs
//   {"op": "predict", "tensors": [TENSOR...], "task": TEXT} an observation; the reply has a chunk of actions
//   {"op": "observe", …}                                    the same, but only remembered: policies that see several steps need each
//       "reset": true      begins an episode: what was observed before is forgotten
//       "task"             for policies that read it; their info says "needs_task"
//       TENSOR = {"key": "observation.state", "dtype": "float32" | "uint8", "shape": [4]}; images are uint8 [height, width, 3]
//
// Replies: {"ok": true, …} or {"ok": false, "error": TEXT}. A predict's has "latency_ms" and "tensors", the one named "action",
// float32 [chunk, action_dim] in the units of the training data; its first row belongs to the observation sent last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace vla {

inline constexpr size_t kPrefixBytes = 16;
inline constexpr size_t kMaxHeaderBytes = size_t{64} << 10;
inline constexpr size_t kMaxPayloadBytes = size_t{64} << 20;

struct MessagePrefix {
  size_t header_bytes = 0, payload_bytes = 0;
  size_t message_bytes() const { return kPrefixBytes + header_bytes + payload_bytes; }
};
// From the first kPrefixBytes. Error: not a message of this version, or one above the limits.
MessagePrefix read_prefix(std::string_view bytes);

struct TensorHeader {
  std::string key, dtype;
  std::vector<int64_t> shape;
  size_t begin = 0, bytes = 0;  // in the payload
};

struct Request {
  enum class Op : uint8_t { kInfo, kObserve, kPredict };
  Op op = Op::kInfo;
  bool reset = false;
  std::optional<std::string> task = {};
  std::vector<TensorHeader> tensors = {};  // different keys that fill the payload
};
Request parse_request(std::string_view header, size_t payload_bytes);

std::string encode_message(const nlohmann::json& header, std::string_view payload = {});

}  // namespace vla
