#include "worker/inference/protocol.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/error.hpp"
#include "common/registry.hpp"

namespace vla {
namespace {

using cxxrun::Error;
using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "tensors go out as they lie in memory");

constexpr char kMagic[] = "VLA1";
constexpr int kMaxDepth = 8;
constexpr size_t kMaxTensors = 64;
constexpr size_t kMaxDimensions = 4;

struct OpRow {
  const char* name;
  Request::Op op;
};
constexpr OpRow kOps[] = {{"info", Request::Op::kInfo}, {"observe", Request::Op::kObserve}, {"predict", Request::Op::kPredict}};

struct DtypeRow {
  const char* name;
  size_t bytes;
};
constexpr DtypeRow kDtypes[] = {{"float32", 4}, {"uint8", 1}};

json parse_json(std::string_view text) {
  const auto check = [](int depth, json::parse_event_t, json&) {
    if (depth > kMaxDepth) throw Error("the header is nested too deeply");
    return true;
  };
  try {
    return json::parse(text, check);
  } catch (const json::exception& e) {
    throw Error("the header is no JSON: {}", e.what());
  }
}

template <class T>
T value_of(const json& object, const char* key, const char* expected) {
  const auto found = object.find(key);
  if (found == object.end()) throw Error("key '{}' is missing: expected {}", key, expected);
  try {
    return found->get<T>();
  } catch (const json::exception&) {
    throw Error("key '{}' is {}: expected {}", key, found->dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 80), expected);
  }
}

void refuse_other_keys(const json& object, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(known, key) == known.end()) {
      throw Error("unknown key '{}'{}", key.substr(0, 80), cxxrun::did_you_mean(key.substr(0, 80), std::vector<std::string_view>(known)));
    }
  }
}

TensorHeader parse_tensor(const json& object, size_t begin) {
  if (!object.is_object()) throw Error("key 'tensors': every tensor is an object with key, dtype and shape");
  refuse_other_keys(object, {"key", "dtype", "shape"});
  TensorHeader tensor{.key = value_of<std::string>(object, "key", "the name of a feature"),
                      .dtype = value_of<std::string>(object, "dtype", "uint8 or float32"),
                      .shape = {},
                      .begin = begin};
  const auto* dtype = std::ranges::find(kDtypes, tensor.dtype, [](const DtypeRow& row) { return std::string_view(row.name); });
  if (dtype == std::end(kDtypes)) throw Error("tensor '{}': dtype '{}' is neither uint8 nor float32", tensor.key, tensor.dtype);
  const json& shape = object.contains("shape") ? object["shape"] : json();
  if (!shape.is_array() || shape.empty() || shape.size() > kMaxDimensions) {
    throw Error("tensor '{}': shape is no list of 1 to {} sizes", tensor.key, kMaxDimensions);
  }
  tensor.bytes = dtype->bytes;
  for (const json& size : shape) {
    const size_t number = size.is_number_unsigned() ? size.get<size_t>() : 0;
    // Both factors are at most kMaxPayloadBytes: their product cannot overflow.
    if (number == 0 || number > kMaxPayloadBytes || (tensor.bytes *= number) > kMaxPayloadBytes) {
      throw Error("tensor '{}': shape {} is empty or too large", tensor.key, shape.dump());
    }
    tensor.shape.push_back(static_cast<int64_t>(number));
  }
  return tensor;
}

}  // namespace

MessagePrefix read_prefix(std::string_view bytes) {
  if (bytes.size() < kPrefixBytes || !bytes.starts_with(kMagic)) throw Error("this is no message that begins with '{}'", kMagic);
  uint32_t header = 0;
  uint64_t payload = 0;
  std::memcpy(&header, bytes.data() + 4, sizeof header);
  std::memcpy(&payload, bytes.data() + 8, sizeof payload);
  if (header > kMaxHeaderBytes) throw Error("a header of {} bytes is above the limit of {}", header, kMaxHeaderBytes);
  if (payload > kMaxPayloadBytes) throw Error("a payload of {} bytes is above the limit of {}", payload, kMaxPayloadBytes);
  return {header, payload};
}

Request parse_request(std::string_view header, size_t payload_bytes) {
  const json object = parse_json(header);
  if (!object.is_object()) throw Error("the header is no JSON object");
  refuse_other_keys(object, {"op", "reset", "task", "tensors"});
  Request request;
  const auto op = value_of<std::string>(object, "op", "info, observe or predict");
  const auto* row = std::ranges::find(kOps, op, [](const OpRow& candidate) { return std::string_view(candidate.name); });
  if (row == std::end(kOps)) throw Error("key 'op' is '{}': expected info, observe or predict", op.substr(0, 80));
  request.op = row->op;
  if (object.contains("reset")) request.reset = value_of<bool>(object, "reset", "true or false");
  if (object.contains("task")) request.task = value_of<std::string>(object, "task", "a text");
  size_t end = 0;
  for (const json& item : object.contains("tensors") ? value_of<json::array_t>(object, "tensors", "a list") : json::array_t()) {
    if (request.tensors.size() == kMaxTensors) throw Error("key 'tensors': more than {}", kMaxTensors);
    TensorHeader tensor = parse_tensor(item, end);
    if (std::ranges::find(request.tensors, tensor.key, &TensorHeader::key) != request.tensors.end()) {
      throw Error("tensor '{}' is there twice", tensor.key);
    }
    end += tensor.bytes;
    request.tensors.push_back(std::move(tensor));
  }
  if (end != payload_bytes) throw Error("the payload has {} bytes, but the tensors of key 'tensors' have {}", payload_bytes, end);
  return request;
}

std::string encode_message(const json& header, std::string_view payload) {
  // An error that quotes a client's garbage must not be one.
  const std::string text = header.dump(-1, ' ', true, json::error_handler_t::replace);
  const auto header_bytes = static_cast<uint32_t>(text.size());
  const uint64_t payload_bytes = payload.size();
  std::string message(kPrefixBytes, '\0');
  std::memcpy(message.data(), kMagic, 4);
  std::memcpy(message.data() + 4, &header_bytes, sizeof header_bytes);
  std::memcpy(message.data() + 8, &payload_bytes, sizeof payload_bytes);
  return message.append(text).append(payload);
}

}  // namespace vla
