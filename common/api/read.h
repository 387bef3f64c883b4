#pragma once

// Typed reading of JSON fields with errors that name the field and the right value. Private to common/api.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "common/api/api.h"
#include "common/json/dom.h"

namespace troupe {

// The reason to refuse a field, or nothing.
using Fault = std::optional<ApiError>;

// "'temperature' must be a number from 0 to 2, not \"hot\"" with `param` set.
ApiError expected(std::string_view param, std::string_view what, dom::element got);
ApiError missing(std::string_view param, std::string_view what);

// The integer that a number is, also one written as 8.0, as languages without integers do. None for a number
// beyond int64, and for a double beyond 2^53.
std::optional<int64_t> integer_of(dom::element value);

// A string that does not stand for an integer beyond 64 bits (wide_integers.h).
bool is_text(dom::element value);

struct IntegerRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
};
struct NumberRange {
  double min;
  double max;
  bool excludes_min = false;
};

// Each function leaves `out` unchanged when it returns a fault. 3.0 is an integer, a boolean is none.
Fault read_integer(std::string_view param, dom::element value, IntegerRange range, int64_t& out);
Fault read_number(std::string_view param, dom::element value, NumberRange range, double& out);
Fault read_optional_number(std::string_view param, dom::element value, NumberRange range,
                           std::optional<double>& out);
Fault read_optional_integer(std::string_view param, dom::element value, int64_t min,
                            std::optional<int64_t>& out);
Fault read_bool(std::string_view param, dom::element value, bool& out);
Fault read_string(std::string_view param, dom::element value, size_t bytes_max, std::string& out);
// Reads a string or a list of strings, none empty, of at most so many bytes in all.
Fault read_strings(std::string_view param, dom::element value, size_t bytes_max,
                   std::vector<std::string>& out);
// As read_strings(), of the lines of a front end's text field: empty ones are left out, and so may be all.
Fault read_lines(std::string_view param, dom::element value, size_t bytes_max, std::vector<std::string>& out);
// Reads 64 bits, signed or not; negative values are taken modulo 2^64.
Fault read_seed(std::string_view param, dom::element value, std::optional<uint64_t>& out);
// Refuses what is no array of objects.
Fault check_objects(std::string_view param, std::string_view what, dom::element value);
// Reads a token id, 0 to 2^31 - 1.
Fault read_token_id(std::string_view param, dom::element value, int32_t& out);

// {"token id": bias from -100 to 100, …}, or [[token id, bias or false], …]: false is a bias of -infinity.
Fault read_logit_bias(std::string_view param, dom::element value,
                      std::vector<std::pair<int32_t, float>>& out);

// Appends a value as compact JSON text; numbers keep their kind (5.0 stays a float), and integers beyond
// 64 bits their digits.
void append_element_json(std::string& out, dom::element value);

// Reads `troupe_resume`, and checks the request's other fields against it.
Fault read_resume(std::string_view param, dom::element value, std::optional<ResumedStream>& out);
Fault check_resume(const GenerateRequest& request);

// A body's fields about the chat's last message.
struct FinalMessage {
  bool asks_generation_prompt = false;  // `add_generation_prompt: true` is there
  std::string prefill;                  // `assistant_prefill`
  bool goes_on_if_assistants = false;   // `continue_final_message: "auto"`
};
// Reads `continue_final_message`: true, false, or "auto".
Fault read_goes_on(std::string_view param, dom::element value, GenerateRequest& request,
                   FinalMessage& fields);
// Settles add_generation_prompt and continue_final_message, after all fields are read.
Fault settle_final_message(GenerateRequest& request, FinalMessage fields);

// Reads `tool_choice`; once all fields are read, checks it against `tools`.
Fault read_tool_choice(std::string_view param, dom::element value, GenerateRequest& request);
Fault check_tool_choice(const GenerateRequest& request);

// Reads `truncation`; "disabled" is none.
Fault read_truncation(std::string_view param, dom::element value, std::optional<Truncation>& out);

// Reads `persona`, of chats where it is taken at all.
Fault read_persona(std::string_view param, dom::element value, bool is_taken, GenerateRequest& request);

inline constexpr std::string_view kPromptRule = "a string or a list of token ids, not empty";
// Reads a completion's prompts.
Fault read_prompt(std::string_view param, dom::element value, GenerateRequest& request);

// Checks `best_of`, 1 of which is none, against `n` and `stream`.
Fault check_best_of(const GenerateRequest& request);

// Reads the most tokens of prompt and answer; of a body's several names the narrower one counts. 0: none.
Fault read_context_max(std::string_view param, dom::element value, std::optional<int64_t>& out);
Fault check_context(const GenerateRequest& request);

// Reads `messages`.
Fault read_messages(std::string_view param, dom::element value, const ApiLimits& limits,
                    std::vector<ChatMessage>& out);
// Reads its `index`th element. `for_others`: see ApiLimits.
Fault read_message(size_t index, dom::element value, bool for_others, ChatMessage& message);

// Parses the body's object strictly into `json`, where it lives until the next parse. Errors as ApiParser's.
ApiResult<dom::object> parse_body(StrictJson& json, JsonText body, const ApiLimits& limits);
// Whether a field says what chat a prompt is made of. Requests that only name a prompt (to be counted, or
// computed ahead) have these read as generation requests do.
bool names_chat(std::string_view field);
// Reads one field of a body of `request.kind`; a name without meaning there is ignored.
Fault read_request_field(const ApiLimits& limits, std::string_view name, dom::element value,
                         GenerateRequest& request);
Fault read_id_list(std::string_view param, dom::array items, std::vector<int32_t>& ids);

// Refuses an unsupported field: returns a fault if `name` is a field of that kind of request that would
// change the answer's meaning and is not at its neutral value; nothing for any other name.
Fault check_unsupported(GenerateRequest::Kind kind, std::string_view name, dom::element value);

}  // namespace troupe
