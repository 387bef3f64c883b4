#pragma once

// Grammars of JSON Schemas, for tests of common/grammar.

#include <gtest/gtest.h>

#include "common/grammar/front/front_ends.h"
#include "tests/common/grammar/grammar_fixture.h"

namespace troupe::grammar_test {

inline std::shared_ptr<const CompiledGrammar> schema_grammar(std::string_view schema,
                                                             const JsonOptions& options = {}) {
  auto rules = rules_of_json_schema(schema, options);
  EXPECT_TRUE(rules.ok()) << schema << ": " << rules.status();
  auto grammar = CompiledGrammar::make(*std::move(rules), small_vocabulary());
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return *grammar;
}

inline std::string schema_error(std::string_view schema) {
  const auto rules = rules_of_json_schema(schema, {});
  return rules.ok() ? "accepted" : std::string(rules.status().message());
}

// A schema, values that it has, values that it has not.
struct Case {
  std::string_view schema;
  std::vector<std::string_view> valid, invalid;
};

class SchemaKeywords : public ::testing::TestWithParam<Case> {};

}  // namespace troupe::grammar_test
