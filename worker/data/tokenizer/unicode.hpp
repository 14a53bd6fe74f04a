// What tokenizers need of Unicode, by ICU: repair of UTF-8, the four normal forms, lower case, classes of characters. Pure functions
// on UTF-8; all but replace_invalid_utf8() want valid text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vla::data {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// U+FFFD for each maximal ill-formed part, as Python's bytes.decode(errors="replace").
std::string replace_invalid_utf8(std::string_view bytes);
std::string normalize(std::string text, NormalForm form);
std::string lowercase(std::string_view text);  // each character by itself: no final sigma
void append_utf8(std::string& text, char32_t character);

// The character that begins at `position`, which moves behind it.
char32_t next_character(std::string_view text, size_t& position);
// The one that ends at `position` > 0, which moves before it.
char32_t previous_character(std::string_view text, size_t& position);
bool is_white_space(char32_t character);
bool is_word_character(char32_t character);  // \w of UTS 18
size_t leading_space(std::string_view text);  // bytes of White_Space at the begin
size_t trailing_space(std::string_view text);

}  // namespace vla::data
