#pragma once

// How JSON values are written as a grammar's options have it: punctuation, words, and texts of given values.

#include <cstdint>
#include <string>
#include <vector>

#include "common/grammar/regex/regex_set.h"
#include "common/json/json.h"

namespace troupe::grammar {

enum class Notation : uint8_t {
  kJson,
  kPython,  // True, False, None; strings between double quotes, spelled as canonical ones of JSON
};

struct JsonOptions {
  // Whether whitespace (JsonLexemes::space) may stand wherever JSON permits, but before the value and behind
  // it. Else items and names are followed by exactly these.
  bool any_whitespace = true;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  Notation notation = Notation::kJson;
  // Texts that no string has in it as they are, for values between tags. Each begins with "</", which JSON
  // can spell otherwise; with kPython there are none.
  std::vector<std::string> barred = {};
};

// How a call's arguments are written where they are no JSON object (arguments.h).
struct ArgumentLayout {
  // Around a name, and around its value.
  std::string name_opens, name_ends, value_opens, value_ends;
  // Between two arguments; a space may stand behind it. Empty: nothing, but line breaks may stand around
  // arguments, and between a name and a value which both have a frame.
  std::string separator;
  // Whether strings are bare text: whatever has none of JsonOptions::barred in it.
  bool has_text = false;
  // Arguments, sorted by name, that are read as JSON where their text is any: strings among their values are
  // JSON's, or a text that cannot be anything else. All others' values are read as text, whatever they are.
  std::vector<std::string> read_as_json = {};
  bool others_read_as_json = false;  // those that no property of the schema declares
};

struct JsonLayout {
  RegexId open_object, close_object, open_array, close_array, item_separator, key_separator;
  RegexId string, name, true_word, false_word, null;  // as JsonLexemes has them
  RegexId barred;                                     // texts that strings may not be; kNothing: any may be
  Notation notation;

  static JsonLayout make(RegexSet& expressions, const JsonOptions& options);
  RegexId boolean(RegexSet& expressions) const;
  // Strings of JSON that are strings in this layout, too.
  RegexId strings(RegexSet& expressions, RegexId json_strings) const;
  // A given string with its quotes, in canonical spelling as far as that is allowed.
  RegexId text(RegexSet& expressions, std::string_view text) const;
  // A given value: its members in its order, its strings as text() has them.
  RegexId value(RegexSet& expressions, const bj::value& value) const;
};

}  // namespace troupe::grammar
