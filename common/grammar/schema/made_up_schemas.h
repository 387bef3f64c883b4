#pragma once

// A document's schemas, and those made up beside them to spell out a keyword: alternatives of `if`, of
// members that depend on others, of negations (negate.h). They refer to the document's schemas, and are made
// once each, so that recursion comes back to what is known.

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/grammar/schema/schema_index.h"

namespace troupe::grammar {

class MadeUpSchemas {
 public:
  // Schemas of which one holds, as Constraints::Group has them.
  struct Alternatives {
    const bj::value* keyword = nullptr;
    std::vector<const bj::value*> schemas;
  };

  MadeUpSchemas() = default;
  explicit MadeUpSchemas(SchemaIndex index) : index_(std::move(index)) {}

  const SchemaIndex& index() const { return index_; }
  // The schema that a chain of bare references leads to; null if that is not in the document.
  const bj::value* target_of(const bj::value* schema) const;
  // Both `condition` and `then` hold, or `otherwise` and not `condition`. Null ones always hold.
  const Alternatives& conditional(const bj::value* condition, const bj::value* then,
                                  const bj::value* otherwise);
  // The member `name` is not there, or `needs` holds: other members' names, or a schema.
  const Alternatives& dependency(bj::string_view name, const bj::value* needs);
  // One holds only where `schema` does not. Of a schema's `names` (alternatives_of_not()) the first count.
  // Errors: alternatives_of_not()'s.
  StatusOr<const Alternatives*> negation_of(const bj::value* schema,
                                            const std::vector<std::string_view>& names);
  // The schema {"not": schema}. Errors (kInvalidArgument): as negation_of(); a reference that leads nowhere
  StatusOr<const bj::value*> not_of(const bj::value* schema, const std::vector<std::string_view>& names);

 private:
  const bj::value* make_up(bj::value value, const bj::value* at);
  bj::object reference(const bj::value* schema) { return {{"$ref", index_.reference_to(schema)}}; }

  SchemaIndex index_;
  std::deque<bj::value> made_up_;
  absl::flat_hash_map<const bj::value*, std::unique_ptr<Alternatives>> spelled_out_;  // by keyword's value
  absl::flat_hash_map<const bj::value*, std::unique_ptr<Alternatives>> negations_;    // by the schema negated
  absl::flat_hash_map<const bj::value*, const bj::value*> nots_;                      // the same
};

}  // namespace troupe::grammar
