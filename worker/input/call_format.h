#pragma once

// Calls of tools as a grammar's parts, in the forms in which models write them (answer_forms.h), with
// arguments that pass the tools' schemas.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/error.h"
#include "common/grammar/front/format.h"
#include "worker/input/mark_speller.h"
#include "worker/text/answer/answer_forms.h"
#include "worker/text/answer/tool_schemas.h"

namespace troupe {

// A function that may be called.
struct CalledFunction {
  std::string name;
  std::string schema;  // of its arguments, an object's; empty: any object
  std::string source;  // of the schema, for errors
  bool is_strict = false;
};

// The functions of a request's tools, or the one named so.
ApiResult<std::vector<CalledFunction>> called_functions(std::string_view tools_json, std::string_view only);

class CallFormat {
 public:
  // `speller` and `schemas`, of the functions, must outlive it.
  CallFormat(const ToolForm& form, const ToolSchemas* schemas, MarkSpeller* speller);

  // Whether calls in this form can be written under a grammar.
  bool is_known() const { return style_ != Style::kUnknown; }
  // Nothing but calls: one, or several if they may be. REQUIRES: is_known(), functions
  ApiResult<grammar::Format> calls(std::span<const CalledFunction> functions, bool parallel);
  // Any text; where it begins a call, that is one of these. REQUIRES: as calls()
  ApiResult<grammar::Format> text_with_calls(std::span<const CalledFunction> functions);

 private:
  enum class Style : uint8_t {
    kUnknown,
    kHermes,
    kLlama,
    kMistral,
    kMistralList,
    kDeepSeek,
    kDeepSeekV3,
    kKimi,
    kQwenCoder,
    kGlm,
    kPythonic,
  };

  // A call behind the mark that begins it.
  grammar::Format rest_of_call(const CalledFunction& function);
  grammar::Format json_call(const CalledFunction& function, std::string_view arguments);
  grammar::Format rest_of_calls(std::span<const CalledFunction> functions);
  grammar::Format llama_calls(std::span<const CalledFunction> functions, bool parallel);
  grammar::Format tagged_arguments(const CalledFunction& function);
  grammar::Format python_calls(std::span<const CalledFunction> functions, bool parallel);
  // Any text that is no call and announces none; `first`: a regular expression of how it may begin.
  grammar::Format text_from(std::string_view first);
  // The texts that a reader takes for these marks: the special tokens, and their spelling.
  std::vector<std::string> readings(const std::vector<std::string_view>& marks);
  grammar::Format mistral_list(std::span<const CalledFunction> functions, bool parallel);
  std::optional<ApiError> check_names(std::span<const CalledFunction> functions) const;
  grammar::Format mark(std::string_view text);

  const ToolForm& form_;
  const ToolSchemas& schemas_;
  MarkSpeller& speller_;
  Style style_ = Style::kUnknown;
};

}  // namespace troupe
