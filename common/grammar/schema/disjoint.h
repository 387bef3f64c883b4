#pragma once

// oneOf: exactly one alternative holds. A grammar can say that only where no value passes two of them, which
// is looked for in types, given values, the texts of numbers and strings, and members that both require.

#include "common/grammar/schema/context.h"

namespace troupe::grammar {

// Errors (kInvalidArgument): two alternatives are not known to be disjoint.
Status check_disjoint(SchemaContext& context, const SchemaSet& schemas, const Constraints::Group& group);

}  // namespace troupe::grammar
