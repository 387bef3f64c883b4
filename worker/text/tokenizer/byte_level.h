#pragma once

// GPT-2's byte alphabet: every byte is written as one printable character, so that a BPE over characters is a
// BPE over bytes. Printable Latin-1 bytes stand for themselves, the other 68 become U+0100…U+0143.

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

// Appends every byte of `text` as its character.
void append_byte_level(std::string& out, std::string_view text);
// The byte a character stands for, or -1.
int byte_of_code_point(char32_t code_point);
// The bytes a token stands for. A token with a character outside the alphabet (an added token, say) is taken
// as the text it is. REQUIRES: valid UTF-8.
std::string bytes_of_token(std::string_view token);

}  // namespace troupe
