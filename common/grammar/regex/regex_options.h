#pragma once

// How a regular expression's text is meant.

#include <cstddef>

#include "common/grammar/regex/encode.h"

namespace troupe::grammar {

struct RegexOptions {
  Encoding encoding = Encoding::kUtf8;
  // Whether the expression may match anywhere in the text (but for ^ and $, which are understood where the
  // text can begin or end), or has to match all of it.
  bool searches = false;
  bool ignores_case = false;  // of ASCII letters
  bool dot_is_all = false;    // else `.` is no end of a line
};

inline constexpr size_t kRegexTextMax = 16 * 1024;

}  // namespace troupe::grammar
