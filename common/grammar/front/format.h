#pragma once

// The form of an answer, put together of parts: what a request asks for (a schema, a regular expression
// …), and what stands around it in a model's own way to write thoughts and calls of tools.

#include <cstdint>
#include <string>
#include <vector>

#include "common/grammar/rules/rules.h"
#include "common/grammar/schema/layout.h"

namespace troupe::grammar {

struct Format {
  enum class Kind : uint8_t {
    kText,       // `text`, any bytes
    kSchema,     // JSON text that passes the schema `text`
    kArguments,  // a call's arguments that pass the schema `text`, as `arguments` has them
    kObject,     // any JSON object
    kRegex,      // a text that `text` matches
    kGbnf,       // a text of the grammar `text`
    kFree,       // any bytes that have none of `marks` in them
    kUntil,      // any bytes whose end is the first of `marks` in them, and that one is `text`
    kSequence,   // the parts, one behind the other
    kEither,     // one of the parts
    kRepeat,     // the first part, `min` to `max` times, with the second, if there is one, between
  };
  Kind kind = Kind::kText;
  std::string text = {};
  std::vector<std::string> marks = {};  // none empty
  std::vector<Format> parts = {};
  uint32_t min = 0, max = RegexSet::kUnbounded;
  JsonOptions json = {};
  ArgumentLayout arguments = {};
  std::string name = {};  // of the text's source, for errors

  static Format literal(std::string text) { return {.kind = Kind::kText, .text = std::move(text)}; }
  static Format free(std::vector<std::string> without) {
    return {.kind = Kind::kFree, .marks = std::move(without)};
  }
  static Format until(std::string mark, std::vector<std::string> marks) {
    return {.kind = Kind::kUntil, .text = std::move(mark), .marks = std::move(marks)};
  }
  static Format sequence(std::vector<Format> parts) {
    return {.kind = Kind::kSequence, .parts = std::move(parts)};
  }
  static Format either(std::vector<Format> parts) {
    return {.kind = Kind::kEither, .parts = std::move(parts)};
  }
  static Format repeat(Format part, uint32_t min, uint32_t max) {
    Format format{.kind = Kind::kRepeat, .min = min, .max = max};
    format.parts.push_back(std::move(part));
    return format;
  }
  static Format optional(Format part) { return repeat(std::move(part), 0, 1); }
};

// A part that is itself, or whose texts come from outside, may be any that `symbol_of_…` (front_ends.h)
// takes. Errors: theirs, behind the part's name; nothing matches.
StatusOr<Rules> rules_of_format(const Format& format);

// A text that formats have in common only if they are the same but for the names in them.
std::string key_of(const Format& format);

}  // namespace troupe::grammar
