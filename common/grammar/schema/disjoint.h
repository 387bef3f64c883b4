#pragma once

// oneOf: exactly one alternative holds. That no value passes two of them is looked for in types, given
// values, the texts of numbers and strings, and members that both require.

#include <utility>
#include <vector>

#include "common/grammar/schema/context.h"

namespace troupe::grammar {

// Pairs of alternatives, by their places, that are not known to be disjoint.
StatusOr<std::vector<std::pair<size_t, size_t>>> overlaps_of(SchemaContext& context, const SchemaSet& schemas,
                                                             const Constraints::Group& group);

}  // namespace troupe::grammar
