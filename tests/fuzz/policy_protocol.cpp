// Requests to a policy server: any bytes are a message whose tensors fill its payload, or an Error that can be sent back.
#include <cstdlib>

#include "common/error.hpp"
#include "worker/inference/protocol.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const vla::MessagePrefix prefix = vla::read_prefix(bytes);
    if (prefix.message_bytes() > size) return 0;
    const vla::Request request = vla::parse_request(bytes.substr(vla::kPrefixBytes, prefix.header_bytes), prefix.payload_bytes);
    size_t end = 0;
    for (const vla::TensorHeader& tensor : request.tensors) {
      if (tensor.begin != end || tensor.bytes == 0) std::abort();
      end += tensor.bytes;
    }
    if (end != prefix.payload_bytes) std::abort();
  } catch (const cxxrun::Error& error) {
    vla::encode_message({{"ok", false}, {"error", error.what()}});
  }
  return 0;
}
