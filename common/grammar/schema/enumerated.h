#pragma once

// Given values (enum, const) under the other constraints beside them.

#include "common/grammar/schema/compiler.h"

namespace troupe::grammar {

// Errors (kInvalidArgument): this cannot be told, by keyword and path.
StatusOr<bool> passes_constraints(SchemaCompiler& compiler, const bj::value& value,
                                  const Constraints& constraints, const SchemaSet& schemas);
// Whether `value` passes all of `schemas`.
StatusOr<bool> passes_schemas(SchemaCompiler& compiler, const bj::value& value, const SchemaSet& schemas,
                              int depth);

}  // namespace troupe::grammar
