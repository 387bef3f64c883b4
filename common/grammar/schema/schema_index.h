#pragma once

// Subschemas of one schema document by where they lie and what they are called: JSON pointers, $anchor, $id.
// References lead nowhere else: nothing is fetched.

#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "common/core/status.h"
#include "common/json/json.h"

namespace troupe::grammar {

inline std::string_view view(const bj::string& text) {
  return {text.data(), text.size()};
}

class SchemaIndex {
 public:
  // `root` must outlive this. Errors (kInvalidArgument): nested too deeply.
  static StatusOr<SchemaIndex> make(const bj::value& root);

  // The schema that `reference`, found in `from`, leads to; null if there is none in the document.
  const bj::value* resolve(const bj::value* from, std::string_view reference) const;
  // A JSON pointer to a value of the document, "#" for its root; of a value made up for one of these
  // keywords, wherever add_path() says.
  std::string path(const bj::value* value) const;
  // A reference that leads to `value`, which need not be one of the document's, from anywhere.
  std::string reference_to(const bj::value* value);
  void add_path(const bj::value* value, std::string path) { places_[value].path = std::move(path); }

 private:
  struct Place {
    std::string path;
    std::string base;  // $id of the innermost schema around it that has one, resolved
  };
  Status visit(const bj::value& value, const std::string& path, const std::string& base, int depth);

  const bj::value* root_ = nullptr;
  absl::flat_hash_map<const bj::value*, Place> places_;
  absl::flat_hash_map<std::string, const bj::value*> names_;  // of $id and of $id#anchor
};

}  // namespace troupe::grammar
