#pragma once

// Regular expressions as texts: the syntax of ECMA 262 (JSON Schema's `pattern`, `regex` of requests), which
// for all that is regular is Python's too. Look-around, backreferences, word boundaries and classes by
// Unicode property are errors, by name. A lazy quantifier matches what its greedy one does.

#include <string_view>

#include "common/core/status.h"
#include "common/grammar/regex/encode.h"
#include "common/grammar/regex/regex_options.h"

namespace troupe::grammar {

// Errors (kInvalidArgument) say what is wrong and at which byte. If `expressions` is exhausted by it the
// result is kNothing.
StatusOr<RegexId> parse_regex(RegexSet& expressions, std::string_view text, const RegexOptions& options);

}  // namespace troupe::grammar
