#pragma once

// The negation of a schema, as schemas.
//
// A value breaks a schema where it breaks one of its keywords, so the negation is a choice with an
// alternative for each keyword: {"required": ["a"], "maxLength": 3} is broken by an object without "a" or by
// a string of four characters. What only a search through a value's parts could show (an element that breaks
// `items`, a name that breaks `propertyNames`) and what is enforced more narrowly than it is defined
// (`format`) has no alternative: what is accepted breaks the schema for sure, and some of what would break it
// is not accepted.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "common/json/json.h"

namespace troupe::grammar {

// A $ref to a value of the document. Called with each subschema that the negation speaks of.
using ReferTo = std::function<std::string(const bj::value& schema)>;

// Schemas of which one holds only where `schema` does not; none where it always holds. `names`: of members
// that an object may have beside the schema's own, for `additionalProperties: false`. In the schemas `not`
// stands before a reference, or before one of the keywords that negates_directly() names. Errors
// (kInvalidArgument) say which keyword leaves nothing to choose.
StatusOr<std::vector<bj::value>> alternatives_of_not(const bj::object& schema, const ReferTo& refer,
                                                     const std::vector<std::string_view>& names);

// Whether a schema's only restriction is `type`, `const`, `enum`, `pattern` or `multipleOf`, whose negation
// is a restriction of the value itself.
bool negates_directly(const bj::object& schema);

}  // namespace troupe::grammar
