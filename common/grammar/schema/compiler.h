#pragma once

// JSON Schema to rules. A rule stands for a set of schemas that all have to hold (SchemaSet): allOf and $ref
// join sets, anyOf divides them, recursion comes back to a set that has its rule already.

#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/core/status.h"
#include "common/grammar/rules/rules.h"
#include "common/grammar/schema/collect.h"
#include "common/grammar/schema/layout.h"

namespace troupe::grammar {

class SchemaCompiler {
 public:
  SchemaCompiler(SchemaReader* reader, const JsonOptions& options);

  // Errors (kInvalidArgument): a keyword that cannot be enforced, with its path; no value passes; past a
  // bound. Once.
  StatusOr<Rules> compile(const bj::value& root);
  // Any object, of any members.
  StatusOr<Rules> compile_any_object();

  // The rule of these schemas, to be filled later.
  Symbol rule_of(const SchemaSet& schemas);
  Symbol any_value();
  RuleBuilder& builder() { return builder_; }
  RegexSet& expressions() { return builder_.expressions(); }
  SchemaReader& reader() { return *reader_; }
  const JsonLayout& layout() const { return layout_; }
  // An expression of the strings that pass; an error naming `where` if they are not a regular language.
  StatusOr<RegexId> strings_of(const SchemaSet& schemas);

 private:
  Status fill_pending();
  Status fill(RuleId rule, const SchemaSet& schemas);
  Status fill_group(RuleId rule, const SchemaSet& schemas, const Constraints::Group& group);
  Status fill_values(RuleId rule, const SchemaSet& schemas, const Constraints& constraints);
  Symbol any_object();

  SchemaReader* reader_;
  RuleBuilder builder_;
  JsonLayout layout_;
  absl::flat_hash_map<SchemaSet, RuleId> rules_;
  std::vector<std::pair<RuleId, SchemaSet>> pending_;
  Symbol any_value_{};
  bool has_any_value_ = false;
  Symbol any_object_{};
};

}  // namespace troupe::grammar
