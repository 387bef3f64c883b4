#pragma once

// GPT-2's byte alphabet writes every byte as one printable character, so that a BPE over characters is a BPE
// over bytes. Printable Latin-1 bytes stand for themselves, the other 68 become U+0100…U+0143.

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

// Appends every byte of `text` as its character.
void append_byte_level(std::string& out, std::string_view text);
// Returns a character's byte, or -1.
int byte_of_code_point(char32_t code_point);
// Returns a token's bytes. A token with a character outside the alphabet (such as an added token) yields its
// text unchanged. REQUIRES: valid UTF-8.
std::string bytes_of_token(std::string_view token);

}  // namespace troupe
