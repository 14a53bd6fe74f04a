// Tokenizers: any bytes are a tokenizer.json that encodes and decodes any text, or an Error. The input is the file, a zero byte, the text.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "common/error.hpp"
#include "worker/data/tokenizer/tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = ::memfd_create("tokenizer.json", MFD_CLOEXEC);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view json = input.substr(0, input.find('\0'));
  const std::string_view text = json.size() < size ? input.substr(json.size() + 1) : "";
  if (::ftruncate(file, 0) != 0 || ::pwrite(file, json.data(), json.size(), 0) != static_cast<ssize_t>(json.size()))
    std::abort();
  try {
    const vla::data::Tokenizer tokenizer("/proc/self/fd/" + std::to_string(file));
    const std::vector<int64_t> ids = tokenizer.encode(text);
    for (const int64_t id : ids) {
      if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
    }
    tokenizer.decode(ids, true);
  } catch (const cxxrun::Error&) {
  }
  return 0;
}
