// A model's text in any form of calls and thoughts: no cut of it changes what is found, and arguments that
// are made of another notation are JSON. The first byte of the input chooses the forms, the second seeds the
// cuts.

#include <boost/json/parse.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/json/json.h"
#include "worker/text/answer/answer_parser.h"

namespace {

constexpr std::string_view kTools =
    R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{)"
    R"("n":{"type":"integer"},"s":{"type":"string"},"a":{},"o":{"type":["object","null"]}}}}}])";

struct Seen {
  std::string reasoning, content;
  std::vector<troupe::ToolCall> calls;
  bool operator==(const Seen&) const = default;
};

class Stream {
 public:
  explicit Stream(const troupe::AnswerSyntax& syntax) : parser_(syntax, "answer", 0) {}
  void push(std::string_view text) {
    troupe::AnswerDelta delta;
    parser_.push(text, 1, delta);
    add(delta);
  }
  const Seen& finish() {
    troupe::AnswerDelta delta;
    parser_.finish(delta);
    add(delta);
    return seen_;
  }

 private:
  void add(const troupe::AnswerDelta& delta) {
    seen_.reasoning += delta.reasoning;
    seen_.content += delta.content;
    for (const troupe::ToolCall& call : delta.calls) {
      const auto index = static_cast<size_t>(call.index);
      if (index > seen_.calls.size()) std::abort();
      if (index == seen_.calls.size()) {
        seen_.calls.push_back(call);
      } else {
        if (!call.name.empty()) std::abort();
        seen_.calls[index].arguments += call.arguments;
      }
    }
  }
  troupe::AnswerParser parser_;
  Seen seen_;
};

// But for the last call, which the end of the text may cut.
void check_json(const Seen& seen) {
  for (size_t i = 0; i + 1 < seen.calls.size(); ++i) {
    boost::json::parse_options options;
    options.max_depth = 256;
    boost::system::error_code error;
    boost::json::parse(seen.calls[i].arguments, error, {}, options);
    if (error) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (!troupe::is_valid_utf8(text)) return 0;
  static const auto schemas =
      std::make_shared<const troupe::ToolSchemas>(troupe::ToolSchemas::parse(kTools).value());
  const auto tools = troupe::tool_form_names();
  const auto thoughts = troupe::thought_form_names();
  troupe::AnswerSyntax syntax;
  syntax.schemas = schemas;
  syntax.tools = troupe::tool_form(tools[data[0] % tools.size()]);
  const size_t thought = data[0] / tools.size();
  if (thought < thoughts.size()) syntax.thoughts = troupe::thought_form(thoughts[thought]);
  syntax.in_thought = syntax.thoughts != nullptr && data[1] % 2 == 1;

  Stream whole(syntax), split(syntax);
  whole.push(text);
  uint32_t state = data[1] + 1u;
  for (size_t at = 0; at < text.size();) {
    state = state * 1664525u + 1013904223u;
    const size_t piece = 1 + (state >> 24) % 7;
    split.push(text.substr(at, piece));
    at += piece;
  }
  const Seen& seen = whole.finish();
  if (seen != split.finish()) std::abort();
  const std::string_view form = syntax.tools->name;
  if (form == "qwen3_coder" || form == "glm45" || form == "gemma4" || form.ends_with("pythonic"))
    check_json(seen);
  return 0;
}
