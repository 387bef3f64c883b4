#pragma once

// Arguments of calls that are no JSON object: each has its name in a frame of its own, and a value in JSON,
// in Python's notation or as bare text, which a reader takes for what the argument's type says.

#include "common/grammar/schema/context.h"
#include "common/grammar/schema/layout.h"

namespace troupe::grammar {

// Arguments that pass `schemas`, those that are declared in the schemas' order. Errors (kInvalidArgument): as
// compile_schema()'s; a keyword or a name that has no place here.
StatusOr<Symbol> arguments_symbol(SchemaContext& context, const SchemaSet& schemas,
                                  const JsonOptions& options, const ArgumentLayout& layout);

}  // namespace troupe::grammar
