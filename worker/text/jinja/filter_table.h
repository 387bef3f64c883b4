#pragma once

// Declarations shared by the files with filters.

#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "worker/text/jinja/value.h"

namespace troupe::jinja {

using FilterFunction = Value (*)(Runtime&, const Value&, Arguments&);

// A method of str, dict or list.
using TextMethod = Value (*)(Runtime&, const Value& self, Arguments&);
// Finds a method of str that lays out or classifies text; nullptr: no such name.
TextMethod find_layout_method(std::string_view name);

const absl::flat_hash_map<std::string_view, FilterFunction>& text_filters();
const absl::flat_hash_map<std::string_view, FilterFunction>& list_filters();
const absl::flat_hash_map<std::string_view, FilterFunction>& layout_filters();

// str.replace(); count < 0: all.
struct Replacement {
  std::string text;
  std::string old_text;
  std::string new_text;
};
std::string replace_text(Runtime& runtime, const Replacement& replacement, int64_t count);
// separator.join(texts), bounded.
std::string join_texts(Runtime& runtime, const std::vector<std::string>& texts, std::string_view separator);

}  // namespace troupe::jinja
