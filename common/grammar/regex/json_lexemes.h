#pragma once

// The expressions that every JSON grammar is made of. All grammars start from a copy of this set, so these
// expressions and all their derivatives have the same ids in each: token sets of them are computed once a
// vocabulary.

#include "common/grammar/regex/regex_set.h"

namespace troupe::grammar {

struct JsonLexemes {
  RegexSet expressions;
  RegexId string = 0;      // any string with its quotes; escapes of every kind, surrogates in pairs
  RegexId name = 0;        // the same in canonical spelling (encode.h): names of members
  RegexId text_char = 0;   // a character of `string`
  RegexId plain_char = 0;  // a character in canonical spelling
  RegexId integer = 0;     // at most 18 digits, which every reader takes exactly
  RegexId number = 0;      // at most 18 digits before the point and behind it, exponents of one or two
  RegexId boolean = 0;
  RegexId null = 0;
  // Whitespace between lexemes, as printers of JSON write it: at most kSpaceMax characters, no carriage
  // return. (Models that are not sure what to say next may say nothing else.)
  RegexId space = 0;
  RegexId base_size = 0;  // expressions with lesser ids are common to all grammars
};
inline constexpr uint32_t kSpaceMax = 24;

const JsonLexemes& json_lexemes();

}  // namespace troupe::grammar
