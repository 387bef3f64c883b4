#pragma once

// Given values (enum, const) under the other constraints beside them.

#include "common/grammar/schema/context.h"

namespace troupe::grammar {

// Errors (kInvalidArgument): this cannot be decided, by keyword and path.
StatusOr<bool> passes_constraints(SchemaContext& context, const bj::value& value,
                                  const Constraints& constraints);
// Whether `value` passes all of `schemas`.
StatusOr<bool> passes_schemas(SchemaContext& context, const bj::value& value, const SchemaSet& schemas,
                              int depth);

// An expression of the strings that pass `schemas`. Errors as above, or they are not one expression.
StatusOr<RegexId> strings_of(SchemaContext& context, const SchemaSet& schemas);

}  // namespace troupe::grammar
