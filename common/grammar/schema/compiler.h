#pragma once

// JSON Schema to rules.

#include "common/core/status.h"
#include "common/grammar/rules/rules.h"
#include "common/grammar/schema/collect.h"
#include "common/grammar/schema/layout.h"

namespace troupe::grammar {

// The values that pass. `reader`: of the document whose root is `root`. Errors (kInvalidArgument): a keyword
// that cannot be enforced, with its path; past a bound.
StatusOr<Symbol> compile_schema(RuleBuilder& builder, SchemaReader& reader, const bj::value& root,
                                const JsonOptions& options);

// Arguments of a call that pass. Errors: as above; a keyword that this way to write them has no place for.
StatusOr<Symbol> compile_arguments(RuleBuilder& builder, SchemaReader& reader, const bj::value& root,
                                   const JsonOptions& options, const ArgumentLayout& layout);

}  // namespace troupe::grammar
