#include "worker/data/tokenizer/byte_alphabet.hpp"

#include <array>

#include "worker/data/tokenizer/unicode.hpp"

namespace vla::data {
namespace {

constexpr char32_t kFirstSubstitute = 256;

struct Alphabet {
  std::array<std::string, 256> of_byte;
  std::array<int, 512> byte_of{};  // -1 = none

  Alphabet() {
    byte_of.fill(-1);
    char32_t substitute = kFirstSubstitute;
    for (int byte = 0; byte < 256; ++byte) {
      const bool is_printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char32_t character = is_printable ? static_cast<char32_t>(byte) : substitute++;
      append_utf8(of_byte[static_cast<size_t>(byte)], character);
      byte_of[character] = byte;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet value;
  return value;
}

}  // namespace

std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) text += alphabet().of_byte[static_cast<unsigned char>(byte)];
  return text;
}

std::string from_byte_alphabet(std::string_view token) {
  std::string bytes;
  for (size_t i = 0; i < token.size();) {
    const char32_t character = next_character(token, i);
    const int byte = character < alphabet().byte_of.size() ? alphabet().byte_of[character] : -1;
    if (byte < 0) return std::string(token);
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

}  // namespace vla::data
