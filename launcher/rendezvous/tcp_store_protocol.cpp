#include "launcher/rendezvous/tcp_store_protocol.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/error.hpp"

namespace cxxrun {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in memory");

constexpr size_t kItemOverhead = 64;  // what a short key costs besides its bytes, so that many empty ones count too

// Fields of a request after its op byte: k key, v value, i int64, u uint32, n count of repetitions of the fields
// after it.
struct Form {
  std::string_view name;
  std::string_view fields;
};
constexpr Form kForms[kStoreOpCount] = {
    {"VALIDATE", "u"},   {"SET", "kv"},        {"COMPARE_SET", "kvv"}, {"GET", "k"},        {"ADD", "ki"},
    {"CHECK", "nk"},     {"WAIT", "nk"},       {"GETNUMKEYS", ""},     {"DELETE_KEY", "k"}, {"APPEND", "kv"},
    {"MULTI_GET", "nk"}, {"MULTI_SET", "nkv"}, {"CANCEL_WAIT", ""},    {"PING", "u"},       {"QUEUE_PUSH", "kv"},
    {"QUEUE_POP", "k"},  {"QUEUE_LEN", "k"},   {"LIST_KEYS", ""},      {"BARRIER", "ki"},
};

const Form& form_of(StoreOp op) { return kForms[static_cast<size_t>(op)]; }

}  // namespace

std::string_view store_op_name(StoreOp op) { return form_of(op).name; }

void encode(const StoreRequest& request, std::string& out) {
  append_number(out, request.op);
  std::string_view fields = form_of(request.op).fields;
  size_t rounds = 1;
  if (fields.starts_with('n')) {
    fields.remove_prefix(1);
    rounds = request.keys.size();
    append_number(out, uint64_t{rounds});
  }
  auto key = request.keys.begin();
  auto value = request.values.begin();
  while (rounds-- > 0) {
    for (const char kind : fields) {
      if (kind == 'k') append_text(out, *key++);
      if (kind == 'v') append_text(out, *value++);
      if (kind == 'i') append_number(out, request.number);
      if (kind == 'u') append_number(out, static_cast<uint32_t>(request.number));
    }
  }
}

std::optional<StoreRequest> StoreDecoder::decode(std::string_view& input) {
  if (dialect_ == Dialect::kUnknown && !choose_dialect(input)) return std::nullopt;
  if (!head_.empty()) {
    const std::string head = std::exchange(head_, {});
    std::string_view rest = head;
    if (auto request = decode_fields(rest)) return request;
  }
  return decode_fields(input);
}

// Current clients begin with VALIDATE: 00 CE F7 85 3C. Read as torch 1.13's SET, that is a key of over a gigabyte.
bool StoreDecoder::choose_dialect(std::string_view& input) {
  const std::string prologue = [] {
    std::string bytes;
    encode({.op = StoreOp::kValidate, .number = kStoreMagic}, bytes);
    return bytes;
  }();
  while (!input.empty()) {
    head_ += input.front();
    input.remove_prefix(1);
    if (!prologue.starts_with(head_)) dialect_ = Dialect::kTorch113;
    if (head_ == prologue) dialect_ = Dialect::kCurrent;
    if (dialect_ != Dialect::kUnknown) return true;
  }
  return false;
}

std::optional<StoreRequest> StoreDecoder::decode_fields(std::string_view& input) {
  if (!in_request_) {
    if (input.empty()) return std::nullopt;
    begin_request(static_cast<uint8_t>(input.front()));
    input.remove_prefix(1);
  }
  while (field_ < fields_.size()) {
    const char kind = fields_[field_];
    if (!in_text_) {
      uint64_t number = 0;
      if (!take_number(input, kind == 'u' ? 4 : 8, number)) return std::nullopt;
      if (kind == 'k' || kind == 'v') {
        begin_text(kind, number);
      } else if (kind == 'n') {
        if (number > limits_.items) {
          throw Error("{} of {} keys is above the store's limit of {}", store_op_name(request_.op), number,
                      limits_.items);
        }
        rounds_left_ = number;
        field_ = number == 0 ? fields_.size() : 1;
      } else {
        request_.number = static_cast<int64_t>(number);
        next_field();
      }
    }
    if (in_text_ && !take_text(input, kind)) return std::nullopt;
  }
  if (request_.op == StoreOp::kValidate && request_.number != kStoreMagic) {
    throw Error("VALIDATE with {:#x} instead of {:#x}: not a TCPStore client", request_.number, kStoreMagic);
  }
  in_request_ = false;
  held_bytes_ = 0;
  return std::exchange(request_, {});
}

bool StoreDecoder::take_number(std::string_view& input, size_t width, uint64_t& number) {
  const size_t taken = std::min(width - scratch_.size(), input.size());
  scratch_ += input.substr(0, taken);
  input.remove_prefix(taken);
  if (scratch_.size() < width) return false;
  std::memcpy(&number, scratch_.data(), width);
  scratch_.clear();
  return true;
}

bool StoreDecoder::take_text(std::string_view& input, char kind) {
  const size_t taken = std::min<uint64_t>(text_left_, input.size());
  text_ += input.substr(0, taken);
  input.remove_prefix(taken);
  text_left_ -= taken;
  held_bytes_ += taken;
  if (text_left_ > 0) return false;
  (kind == 'k' ? request_.keys : request_.values).push_back(std::exchange(text_, {}));
  in_text_ = false;
  next_field();
  return true;
}

void StoreDecoder::begin_request(uint8_t op_byte) {
  int op = op_byte;
  if (dialect_ == Dialect::kTorch113) op = op_byte <= 6 ? op_byte + 1 : op_byte == 8 ? 8 : -1;
  if (op < 0 || op >= kStoreOpCount) {
    throw Error("unknown TCPStore operation {} ({}); {}", op_byte,
                dialect_ == Dialect::kTorch113
                    ? "the client did not begin with VALIDATE: not a TCPStore client, or one of torch 2.1 or older"
                    : "the client is newer than this launcher",
                kAgentStoreRemedy);
  }
  request_ = {.op = static_cast<StoreOp>(op)};
  fields_ = form_of(request_.op).fields;
  field_ = 0;
  rounds_left_ = 1;
  announced_bytes_ = 0;
  in_request_ = true;
}

void StoreDecoder::begin_text(char kind, uint64_t length) {
  if (kind == 'k' && length > limits_.key_bytes) {
    throw Error("{} with a key of {} bytes is above the store's limit of {}; {}", store_op_name(request_.op), length,
                limits_.key_bytes, kAgentStoreRemedy);
  }
  if (length > limits_.request_bytes || announced_bytes_ + length + kItemOverhead > limits_.request_bytes) {
    throw Error("{} with {} bytes or more is above the store's limit of {}; {}", store_op_name(request_.op), length,
                limits_.request_bytes, kAgentStoreRemedy);
  }
  announced_bytes_ += length + kItemOverhead;
  held_bytes_ += kItemOverhead;
  text_left_ = length;
  in_text_ = true;
}

void StoreDecoder::next_field() {
  if (++field_ == fields_.size() && --rounds_left_ > 0) field_ = 1;
}

}  // namespace cxxrun
