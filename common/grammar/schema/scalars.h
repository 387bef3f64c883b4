#pragma once

// Numbers and strings under constraints, as expressions of their JSON text.

#include "common/core/status.h"
#include "common/grammar/regex/regex_set.h"
#include "common/grammar/schema/constraints.h"

namespace troupe::grammar {

// Within `types`, which has kIntegerBit or both number bits. Bounded numbers are written without an exponent
// and with at most 15 digits where they have a fraction, so that readers which take them for doubles see
// them on the same side of a bound.
RegexId number_expression(RegexSet& expressions, const NumberConstraints& constraints, uint8_t types);
// A string's text with its quotes. Errors (kInvalidArgument) name the keyword.
StatusOr<RegexId> string_expression(RegexSet& expressions, const StringConstraints& constraints);
// The same as bare text: characters in UTF-8, without quotes or escapes.
StatusOr<RegexId> text_expression(RegexSet& expressions, const StringConstraints& constraints);
// Whether the expression matches `text`, by derivatives.
bool expression_matches(RegexSet& expressions, RegexId expression, std::string_view text);
// A regular expression (parse_regex.h) for texts of a format; empty if there is none.
std::string_view format_regex(std::string_view format);
// Whether JSON Schema defines the format. (Others say nothing about a value: 2020-12, validation, 7.2.3.)
bool is_defined_format(std::string_view format);

}  // namespace troupe::grammar
