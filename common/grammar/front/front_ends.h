#pragma once

// The ways a request says what its answer has to look like, as rules. All errors are kInvalidArgument, for
// the request's sender, or those of the thread's work limit (common/core/work_limit.h), which bounds their
// time; sizes are bounded here. A part of a grammar becomes a symbol of its builder.

#include <span>
#include <string>
#include <string_view>

#include "common/grammar/rules/rules.h"
#include "common/grammar/schema/layout.h"

namespace troupe::grammar {

inline constexpr size_t kSchemaBytesMax = 1u << 20;
inline constexpr size_t kGbnfBytesMax = 256u << 10;
inline constexpr size_t kChoiceBytesMax = 256u << 10;

// JSON Schema, draft 2020-12 and older spellings. A keyword that cannot be enforced is an error that names it
// and its path.
StatusOr<Symbol> symbol_of_json_schema(RuleBuilder& builder, std::string_view schema,
                                       const JsonOptions& options);
// Arguments of a call (ArgumentLayout) that pass a schema, an object's.
StatusOr<Symbol> symbol_of_arguments(RuleBuilder& builder, std::string_view schema,
                                     const JsonOptions& options, const ArgumentLayout& layout);
// Any JSON object.
StatusOr<Symbol> symbol_of_json_object(RuleBuilder& builder, const JsonOptions& options);
// A text that the expression (regex/parse_regex.h) matches as a whole.
StatusOr<Symbol> symbol_of_regex(RuleBuilder& builder, std::string_view regex);
// One of these texts.
StatusOr<Symbol> symbol_of_choice(RuleBuilder& builder, std::span<const std::string> texts);
// llama.cpp's GBNF; the answer is its rule `root`.
StatusOr<Symbol> symbol_of_gbnf(RuleBuilder& builder, std::string_view grammar);

// The same as grammars of their own. (More: that nothing matches is an error.)
StatusOr<Rules> rules_of_json_schema(std::string_view schema, const JsonOptions& options);
StatusOr<Rules> rules_of_arguments(std::string_view schema, const JsonOptions& options,
                                   const ArgumentLayout& layout);
StatusOr<Rules> rules_of_json_object(const JsonOptions& options);
StatusOr<Rules> rules_of_regex(std::string_view regex);
StatusOr<Rules> rules_of_choice(std::span<const std::string> texts);
StatusOr<Rules> rules_of_gbnf(std::string_view grammar);

}  // namespace troupe::grammar
