#pragma once

// Integers beyond 64 bits in JSON, which Python's programs write and read at any size. Neither our tape nor
// our tree has a type for them: a text that holds some is spelled otherwise before it is parsed, with each of
// them as a double or, where its digits matter, as a string that only such an integer is.

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

// The mark's text is secret to this process and must not leave it. Any thread.
std::string_view wide_integer_mark();

enum class WideIntegers : uint8_t { kAsDoubles, kAsMarkedText };

// `json` with its integers that exceed 64 bits spelled so; empty where it has none.
std::string with_wide_integers(std::string_view json, WideIntegers how);

// The digits of an integer that was spelled as marked text; empty: the text is a text.
std::string_view wide_integer_of(std::string_view text);

}  // namespace troupe
