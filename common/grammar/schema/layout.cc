#include "common/grammar/schema/layout.h"

#include <array>

#include "absl/strings/str_replace.h"
#include "common/grammar/regex/encode.h"
#include "common/grammar/regex/json_lexemes.h"
#include "common/grammar/schema/decimal.h"

namespace troupe::grammar {

JsonLayout JsonLayout::make(RegexSet& set, const JsonOptions& options) {
  const RegexId space = options.any_whitespace ? json_lexemes().space : RegexSet::kEmpty;
  const auto spaced = [&](std::string_view text) {
    return set.concat(std::array{space, set.literal(text), space});
  };
  JsonLayout layout{};
  layout.open_object = set.concat(set.literal("{"), space);
  layout.close_object = set.concat(space, set.literal("}"));
  layout.open_array = set.concat(set.literal("["), space);
  layout.close_array = set.concat(space, set.literal("]"));
  layout.item_separator = options.any_whitespace ? spaced(",") : set.literal(options.item_separator);
  layout.key_separator = options.any_whitespace ? spaced(":") : set.literal(options.key_separator);
  const bool is_python = options.notation == Notation::kPython;
  layout.notation = options.notation;
  layout.true_word = set.literal(is_python ? "True" : "true");
  layout.false_word = set.literal(is_python ? "False" : "false");
  layout.null = is_python ? set.literal("None") : json_lexemes().null;
  layout.barred = containing(set, options.barred);
  layout.string = layout.strings(set, json_lexemes().string);
  layout.name = layout.strings(set, json_lexemes().name);
  return layout;
}

RegexId JsonLayout::boolean(RegexSet& set) const {
  return set.either({true_word, false_word});
}

RegexId JsonLayout::strings(RegexSet& set, RegexId json_strings) const {
  // (Python has other escapes than JSON, but those of the canonical spelling are both's.)
  const RegexId known =
      notation == Notation::kPython ? set.both({json_strings, json_lexemes().name}) : json_strings;
  return barred == RegexSet::kNothing ? known : set.both({known, set.complement(barred)});
}

RegexId JsonLayout::text(RegexSet& set, std::string_view text) const {
  std::string literal;
  append_json_string(literal, text);
  if (barred != RegexSet::kNothing) literal = absl::StrReplaceAll(literal, {{"</", "<\\/"}});
  return set.literal(literal);
}

// (Recursion: the depth of a parsed document is bounded.)
RegexId JsonLayout::value(RegexSet& set, const bj::value& value) const {
  switch (value.kind()) {
    case bj::kind::null:
      return null;
    case bj::kind::bool_:
      return value.as_bool() ? true_word : false_word;
    case bj::kind::string:
      return text(set, {value.as_string().data(), value.as_string().size()});
    case bj::kind::array: {
      RegexId id = RegexSet::kEmpty;
      for (size_t i = value.as_array().size(); i-- > 0;) {
        const RegexId before = i == 0 ? RegexSet::kEmpty : item_separator;
        id = set.concat(std::array{before, this->value(set, value.as_array()[i]), id});
      }
      return set.concat(std::array{open_array, id, close_array});
    }
    case bj::kind::object: {
      std::vector<RegexId> parts = {open_object};
      for (const auto& [key, member] : value.as_object()) {
        if (parts.size() > 1) parts.push_back(item_separator);
        parts.push_back(text(set, {key.data(), key.size()}));
        parts.push_back(key_separator);
        parts.push_back(this->value(set, member));
      }
      parts.push_back(close_object);
      return set.concat(parts);
    }
    default:
      return set.literal(number_text(value));
  }
}

}  // namespace troupe::grammar
