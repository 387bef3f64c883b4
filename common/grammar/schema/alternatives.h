#pragma once

// Schemas divided into their alternatives: what fills a rule, and what is spelled out in one expression.

#include <vector>

#include "common/grammar/schema/context.h"

namespace troupe::grammar {

// `schemas` by which alternative of a group of theirs holds; of one that is exclusive, no other does. Errors
// (kInvalidArgument): that cannot be enforced.
StatusOr<std::vector<SchemaSet>> alternatives_of(SchemaContext& context, const SchemaSet& schemas,
                                                 const Constraints::Group& group);
// Errors (kInvalidArgument): `constraints`, of `schemas`, exclude an array or an object that is not empty.
Status check_excluded(SchemaContext& context, const SchemaSet& schemas, const Constraints& constraints);

}  // namespace troupe::grammar
