#pragma once

// The punctuation of JSON texts as a grammar's options have it, and texts of given values in it.

#include <string>

#include "common/grammar/regex/regex_set.h"
#include "common/json/json.h"

namespace troupe::grammar {

struct JsonOptions {
  // Whether whitespace (JsonLexemes::space) may stand wherever JSON permits, but before the value and behind
  // it. Else items and names are followed by exactly these.
  bool any_whitespace = true;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

struct JsonLayout {
  RegexId open_object, close_object, open_array, close_array, item_separator, key_separator;

  static JsonLayout make(RegexSet& expressions, const JsonOptions& options);
  // A given value: its members in its order, its strings in canonical spelling.
  RegexId value(RegexSet& expressions, const bj::value& value) const;
};

}  // namespace troupe::grammar
