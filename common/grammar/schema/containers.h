#pragma once

// Arrays and objects under constraints.

#include "common/grammar/schema/context.h"

namespace troupe::grammar {

// Errors (kInvalidArgument) name the keyword and the path of `schemas`.
StatusOr<Symbol> array_symbol(SchemaContext& context, const SchemaSet& schemas,
                              const Constraints& constraints);
// Members that are declared come in the schemas' order, others behind them; none is declared twice.
StatusOr<Symbol> object_symbol(SchemaContext& context, const SchemaSet& schemas,
                               const Constraints& constraints);

// Schemas that hold for the element at `index`; those of all elements behind the longest prefix.
SchemaSet element_schemas(const Constraints& constraints, size_t index);
size_t prefix_size(const Constraints& constraints);
// Schemas that hold for the member `name`. Errors: a pattern.
StatusOr<SchemaSet> member_schemas(SchemaContext& context, const Constraints& constraints,
                                   std::string_view name);

}  // namespace troupe::grammar
