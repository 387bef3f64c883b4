#pragma once

// The mark before a special token that a template writes itself (tokenizer/cut_text.h), where the text that
// it rendered still has its marks.

#include <string_view>

namespace troupe {

inline constexpr std::string_view kOwnMark = "\xEF\xB7\x93";  // U+FDD3, a noncharacter

}  // namespace troupe
