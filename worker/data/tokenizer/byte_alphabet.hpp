// GPT-2's alphabet: one printable character for each of the 256 bytes, so that tokens of bytes are text.
#pragma once

#include <string>
#include <string_view>

namespace vla::data {

std::string to_byte_alphabet(std::string_view bytes);

// The bytes that the characters of `token` stand for; `token` as it is, if one of them stands for none.
std::string from_byte_alphabet(std::string_view token);

}  // namespace vla::data
