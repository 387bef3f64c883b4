#pragma once

// Reads schemas' keywords into Constraints. Every keyword that restricts values is taken or refused by name;
// annotations and unknown keywords, which restrict nothing, are passed over.

#include <algorithm>

#include "common/grammar/schema/constraints.h"
#include "common/grammar/schema/made_up_schemas.h"

namespace troupe::grammar {

class SchemaReader {
 public:
  // `root` must outlive this.
  static StatusOr<SchemaReader> make(const bj::value& root);

  // Follows $ref and allOf. Errors (kInvalidArgument) say keyword and path.
  StatusOr<Constraints> collect(const SchemaSet& schemas);
  // An error about a keyword of `schema`.
  Status error(const bj::value* schema, std::string_view keyword, std::string_view message) const;
  std::string path(const bj::value* schema) const { return schemas_.index().path(schema); }
  MadeUpSchemas& made_up() { return schemas_; }

 private:
  struct Collecting;  // the schema that is being read, and where its keywords go
  using Read = Status (SchemaReader::*)(Collecting&, const bj::value&);
  struct Keyword {
    std::string_view name;
    Read read;
  };
  static const std::vector<Keyword>& keywords();

  Status read_schema(const bj::value* schema, Collecting& into);
  Status read_ref(Collecting& into, const bj::value& value);
  Status read_all_of(Collecting& into, const bj::value& value);
  Status read_alternatives(Collecting& into, const bj::value& value);
  Status read_type(Collecting& into, const bj::value& value);
  Status read_values(Collecting& into, const bj::value& value);
  Status read_number(Collecting& into, const bj::value& value);
  Status read_string(Collecting& into, const bj::value& value);
  Status read_count(Collecting& into, const bj::value& value);
  Status read_items(Collecting& into, const bj::value& value);
  Status read_members(Collecting& into, const bj::value& value);
  Status read_required(Collecting& into, const bj::value& value);
  Status read_dependencies(Collecting& into, const bj::value& value);
  Status read_unevaluated(Collecting& into, const bj::value& value);
  Status read_not(Collecting& into, const bj::value& value);
  Status read_if(Collecting& into, const bj::value& value);
  Status refuse(Collecting& into, const bj::value& value);
  Status negate_directly(Collecting& into, const bj::object& schema);
  StatusOr<Decimal> read_multiple(const Collecting& into, const bj::value& value) const;

  MadeUpSchemas schemas_;
};

struct SchemaReader::Collecting {
  const SchemaSet& set;
  Constraints constraints;
  std::vector<const bj::value*> queue;  // schemas that all have to hold
  const bj::value* schema = nullptr;
  std::string_view keyword;

  bool is_chosen(const bj::value* alternatives) const {
    return std::binary_search(set.chosen.begin(), set.chosen.end(), alternatives);
  }
  const bj::object& object() const { return schema->as_object(); }
  const bj::value* sibling(std::string_view key) const {
    return object().if_contains({key.data(), key.size()});
  }
};

// TypeBits of `type`'s value, a name or an array of names; -1 if one is unknown. `nullable`: OpenAPI 3.0's
// keyword beside it, or null.
int type_bits(const bj::value& names, const bj::value* nullable);

// Whether `schema` is true or {}: any value.
bool is_any_schema(const bj::value* schema);

}  // namespace troupe::grammar
