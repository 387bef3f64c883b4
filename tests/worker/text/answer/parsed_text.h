#pragma once

// An answer's text through a parser of some form, in one piece or in several.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker/text/answer/answer_parser.h"

namespace troupe::parsed_text {

struct ParseAs {
  std::string_view tools = {}, thoughts = {};  // forms' names; empty: none
  std::string_view tools_json = "[]";
  bool in_thought = false, includes_thoughts = true, parallel = true;
};

struct Parsed {
  std::string reasoning, content;
  std::vector<ToolCall> calls;  // with their whole arguments
  bool operator==(const Parsed&) const = default;
};

class Stream {
 public:
  explicit Stream(const ParseAs& setup) : parser_(syntax_of(setup), "answer", 0) {}

  void push(std::string_view text) {
    AnswerDelta delta;
    parser_.push(text, 1, delta);
    add(delta);
  }
  void finish() {
    AnswerDelta delta;
    parser_.finish(delta);
    add(delta);
  }
  const AnswerParser& parser() const { return parser_; }
  Parsed parsed;

 private:
  static AnswerSyntax syntax_of(const ParseAs& setup) {
    AnswerSyntax syntax;
    syntax.tools = tool_form(setup.tools);
    syntax.thoughts = thought_form(setup.thoughts);
    syntax.schemas = std::make_shared<ToolSchemas>(ToolSchemas::parse(setup.tools_json).value());
    syntax.in_thought = setup.in_thought;
    syntax.includes_thoughts = setup.includes_thoughts;
    syntax.parallel_calls = setup.parallel;
    return syntax;
  }
  void add(const AnswerDelta& delta) {
    parsed.reasoning += delta.reasoning;
    parsed.content += delta.content;
    for (const ToolCall& call : delta.calls) {
      ASSERT_GE(call.index, 0);
      const auto index = static_cast<size_t>(call.index);
      if (index < parsed.calls.size()) {
        EXPECT_TRUE(call.id.empty() && call.name.empty()) << "named twice";
        parsed.calls[index].arguments += call.arguments;
      } else {
        ASSERT_EQ(index, parsed.calls.size());
        EXPECT_FALSE(call.id.empty() || call.name.empty());
        parsed.calls.push_back(call);
      }
    }
  }

  AnswerParser parser_;
};

inline Parsed parsed(const ParseAs& setup, std::string_view text) {
  Stream stream(setup);
  stream.push(text);
  stream.finish();
  return stream.parsed;
}

// In two pieces, whatever the cut, and byte by byte, through characters.
inline void expect_same_at_every_cut(const ParseAs& setup, std::string_view text) {
  const Parsed whole = parsed(setup, text);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Stream stream(setup);
    stream.push(text.substr(0, cut));
    stream.push(text.substr(cut));
    stream.finish();
    ASSERT_EQ(stream.parsed, whole) << "cut at " << cut << ": " << text;
  }
  Stream stream(setup);
  for (const char byte : text) stream.push({&byte, 1});
  stream.finish();
  ASSERT_EQ(stream.parsed, whole) << "byte by byte: " << text;
}

}  // namespace troupe::parsed_text
