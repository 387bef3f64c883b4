#pragma once

// Arrays and objects under constraints.

#include "common/grammar/schema/context.h"

namespace troupe::grammar {

// Errors (kInvalidArgument) name the keyword and the path of `schemas`.
StatusOr<Symbol> array_symbol(SchemaContext& context, const SchemaSet& schemas,
                              const Constraints& constraints);
// How an object's members are written; JSON's, or a call's arguments (arguments.h).
struct MemberForm {
  virtual ~MemberForm() = default;
  // The name of a declared member, with what follows it up to the value; kNothing: it may not come.
  virtual StatusOr<RegexId> name(std::string_view name) = 0;
  // The value of the member `name` under `schemas`, with what follows it up to the next.
  virtual StatusOr<Symbol> value(std::string_view name, const SchemaSet& schemas) = 0;
  // Members with other names than these; none: there are no others.
  virtual StatusOr<std::vector<Symbol>> others(const std::vector<std::string_view>& declared) = 0;

  RegexId open, close, separator;
};
// The object's symbol, in this form. Errors: as below.
StatusOr<Symbol> members_symbol(SchemaContext& context, const SchemaSet& schemas,
                                const Constraints& constraints, MemberForm& form);
// Members that are declared come in the schemas' order, others behind them; none is declared twice.
StatusOr<Symbol> object_symbol(SchemaContext& context, const SchemaSet& schemas,
                               const Constraints& constraints);

// Schemas of members that nothing names.
SchemaSet additional_schemas(const Constraints& constraints);
// Whether one of them is `false`.
bool has_false(const SchemaSet& schemas);
// Schemas that hold for the element at `index`; those of all elements behind the longest prefix.
SchemaSet element_schemas(const Constraints& constraints, size_t index);
size_t prefix_size(const Constraints& constraints);
// Schemas that hold for the member `name`. Errors: a pattern.
StatusOr<SchemaSet> member_schemas(SchemaContext& context, const Constraints& constraints,
                                   std::string_view name);

}  // namespace troupe::grammar
