#include "worker/data/tokenizer/unicode.hpp"

#include <algorithm>

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include "common/error.hpp"

namespace vla::data {
namespace {

const icu::Normalizer2& normalizer_of(NormalForm form, UErrorCode& status) {
  switch (form) {
    case NormalForm::kNfc:
      return *icu::Normalizer2::getNFCInstance(status);
    case NormalForm::kNfd:
      return *icu::Normalizer2::getNFDInstance(status);
    case NormalForm::kNfkc:
      return *icu::Normalizer2::getNFKCInstance(status);
    case NormalForm::kNfkd:
      break;
  }
  return *icu::Normalizer2::getNFKDInstance(status);
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size();) {
    const size_t begin = i;
    UChar32 character;
    U8_NEXT(bytes, i, bytes.size(), character);
    text.append(character < 0 ? std::string_view("\xEF\xBF\xBD") : bytes.substr(begin, i - begin));
  }
  return text;
}

std::string normalize(std::string text, NormalForm form) {
  if (is_ascii(text)) return text;
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2& normalizer = normalizer_of(form, status);
  std::string normalized;
  icu::StringByteSink<std::string> sink(&normalized);
  if (U_SUCCESS(status)) normalizer.normalizeUTF8(0, text, sink, nullptr, status);
  if (U_FAILURE(status))
    throw cxxrun::Error("cannot normalize a text of {} bytes: {}", text.size(), u_errorName(status));
  return normalized;
}

std::string lowercase(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const char32_t character = next_character(text, i);
    // The only character whose lower case is two.
    if (character == U'\u0130') {
      result += "i\u0307";
    } else {
      append_utf8(result, static_cast<char32_t>(u_tolower(static_cast<UChar32>(character))));
    }
  }
  return result;
}

void append_utf8(std::string& text, char32_t character) {
  char bytes[U8_MAX_LENGTH];
  size_t size = 0;
  U8_APPEND_UNSAFE(bytes, size, character);
  text.append(bytes, size);
}

char32_t next_character(std::string_view text, size_t& position) {
  UChar32 character;
  U8_NEXT_OR_FFFD(text, position, text.size(), character);
  return static_cast<char32_t>(character);
}

char32_t previous_character(std::string_view text, size_t& position) {
  while (position > 0 && U8_IS_TRAIL(text[--position])) {
  }
  size_t begin = position;
  return next_character(text, begin);
}

bool is_white_space(char32_t character) { return u_isUWhiteSpace(static_cast<UChar32>(character)); }

bool is_word_character(char32_t character) {
  const auto c = static_cast<UChar32>(character);
  return u_isUAlphabetic(c) || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) ||
         (U_GET_GC_MASK(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK));
}

size_t leading_space(std::string_view text) {
  size_t space = 0;
  for (size_t i = 0; i < text.size() && is_white_space(next_character(text, i)); space = i) {
  }
  return space;
}

size_t trailing_space(std::string_view text) {
  size_t begin = text.size();
  for (size_t i = begin; i > 0 && is_white_space(previous_character(text, i)); begin = i) {
  }
  return text.size() - begin;
}

}  // namespace vla::data
