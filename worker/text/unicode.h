#pragma once

// Unicode functions shared by the text stages: walking UTF-8, normalisation (utf8proc), and turning a
// stream of bytes into valid text. Functions that require "valid UTF-8" rely on the caller, which checked
// at the edge.

#include <cstddef>
#include <string>
#include <string_view>

#include "common/core/status.h"

namespace troupe {

// The code point at text[pos]; moves pos behind it. REQUIRES: valid UTF-8 and pos < text.size().
char32_t next_code_point(std::string_view text, size_t& pos);
void append_utf8(std::string& out, char32_t code_point);
size_t count_code_points(std::string_view text);

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
StatusOr<std::string> normalize_utf8(std::string_view text, NormalForm form);

// Unicode property White_Space: the spaces of Oniguruma, Rust and (nearly) Python's str.strip().
bool is_white_space(char32_t code_point);
// The functions below classify as the originals do (unicode_corrections.h).
// General category N (Nd, Nl, No).
bool is_numeric(char32_t code_point);
// General categories L and Nd.
bool is_letter(char32_t code_point);
bool is_decimal_digit(char32_t code_point);
// \w of Rust and Oniguruma: Alphabetic (as far as general categories show), M, Nd, Pc, Join_Control.
bool is_word_char(char32_t code_point);
// General category P, and the other ASCII signs ($+<=>^`|~).
bool is_punctuation(char32_t code_point);
// General category M.
bool is_mark(char32_t code_point);
// Appends the lower case of one character.
void append_lowercase(std::string& out, char32_t code_point);

// Kind of the bytes at the front of a text: a character (valid), a maximal invalid part, or (incomplete) all
// remaining bytes, which may still become one.
struct Utf8Part {
  size_t size = 1;
  bool valid = false;
  bool incomplete = false;
};
// REQUIRES: !bytes.empty().
Utf8Part first_utf8_part(std::string_view bytes);

// Moves text out of `bytes`: whole characters unchanged, every maximal invalid part as one U+FFFD (the
// practice of Unicode §3.9, Rust's from_utf8_lossy and Python's errors="replace"). A tail that may still
// become a character stays in `bytes`, unless at_end.
void take_valid_utf8(std::string& bytes, std::string& out, bool at_end);
// `bytes` without a character at their end that lacks its last bytes.
std::string without_cut_character(std::string_view bytes);

}  // namespace troupe
