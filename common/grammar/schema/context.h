#pragma once

// JSON Schema on its way to rules. A rule stands for a set of schemas that all have to hold (SchemaSet):
// allOf and $ref join sets, anyOf divides them, recursion comes back to a set that has its rule already.

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/grammar/rules/rules.h"
#include "common/grammar/schema/collect.h"
#include "common/grammar/schema/layout.h"

namespace troupe::grammar {

class SchemaContext {
 public:
  // Both must outlive this.
  SchemaContext(RuleBuilder* builder, SchemaReader* reader, const JsonOptions& options);

  // The rule of these schemas, to be filled later.
  Symbol rule_of(const SchemaSet& schemas);
  Symbol any_value();
  Symbol any_object();
  // The next rule to be filled, with its schemas; false if all are.
  bool take_pending(RuleId& rule, SchemaSet& schemas);
  size_t rule_count() const { return rules_.size(); }

  RuleBuilder& builder() { return builder_; }
  RegexSet& expressions() { return builder_.expressions(); }
  SchemaReader& reader() { return *reader_; }
  const JsonLayout& layout() const { return layout_; }

 private:
  RuleBuilder& builder_;
  SchemaReader* reader_;
  JsonLayout layout_;
  absl::flat_hash_map<SchemaSet, RuleId> rules_;
  std::vector<std::pair<RuleId, SchemaSet>> pending_;
  Symbol any_value_{};
  bool has_any_value_ = false;
  Symbol any_object_{};
};

}  // namespace troupe::grammar
