#pragma once

// Reads schemas' keywords into Constraints. Every keyword that restricts values is taken or refused by name;
// annotations and unknown keywords, which restrict nothing, are passed over.

#include <deque>

#include "common/grammar/schema/constraints.h"

namespace troupe::grammar {

class SchemaReader {
 public:
  // `root` must outlive this.
  static StatusOr<SchemaReader> make(const bj::value& root);

  // Follows $ref and allOf. Errors (kInvalidArgument) say keyword and path.
  StatusOr<Constraints> collect(const SchemaSet& schemas);
  // An error about a keyword of `schema`.
  Status error(const bj::value* schema, std::string_view keyword, std::string_view message) const;
  std::string path(const bj::value* schema) const { return index_.path(schema); }

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
  Status refuse(Collecting& into, const bj::value& value);
  const bj::value* make_up(bj::value value, const bj::value* at);

  SchemaIndex index_;
  std::deque<bj::value> made_up_;  // schemas that spell out a keyword, which refer to each other by pointer
  absl::flat_hash_map<const bj::value*, std::vector<const bj::value*>> dependencies_;
};

// Whether `schema` is true or {}: any value.
bool is_any_schema(const bj::value* schema);

}  // namespace troupe::grammar
