#pragma once

// Expressions for texts of bounded length: many that differ are one.

#include "common/grammar/regex/regex_set.h"

namespace troupe::grammar {

// An expression that texts of at most `length` bytes begin and are matches of as they do of `expression`:
// larger counts of repetitions are let go. The expression itself if it is not plain. May exhaust the set.
RegexId clamped(RegexSet& set, RegexId expression, uint32_t length);

}  // namespace troupe::grammar
