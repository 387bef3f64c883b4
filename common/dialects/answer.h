#pragma once

// The words of an answer of ours (a chat's or a completion's, whole or a chunk of a stream), read from its
// JSON for a dialect to say again in its own form. Plain data. Workers of another kind answer in the same
// form, with less in it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/json.h"

namespace troupe {

struct AnswerUsage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt
  int64_t reasoning_tokens = 0;
};

// One choice of an answer, or the piece of it that a chunk has.
struct ChoicePiece {
  struct Call {
    size_t index = 0;
    std::string id, name;   // empty: a further piece of the call
    std::string arguments;  // JSON's text, or a piece of it
  };
  int64_t index = 0;
  std::string text, reasoning;
  std::vector<Call> calls;
  std::string finish;     // "stop", "length", "tool_calls", …; empty: it goes on
  std::string stop_text;  // the stop string that ended it, where the worker says so
  bj::value logprobs;     // as they came; null: none
};

struct AnswerPiece {
  std::string id, model;
  int64_t created_s = 0;
  std::vector<ChoicePiece> choices;
  std::optional<AnswerUsage> usage;
};

// The pieces are empty if the object is no answer.
AnswerPiece read_answer(const bj::object& body);

// "chatcmpl-1f…" or "cmpl-1f…" → PREFIX1f….
std::string id_with(std::string_view prefix, std::string_view id);

// An error in our own form, {"error": {…}}, or in another server's, as far as it is understood.
struct AnswerError {
  int status = 500;
  std::string message, type, param, code;
};
// The error of an object that holds one; nullopt: none. `status`: 0 if it came within a stream, where the
// error's own code says it.
std::optional<AnswerError> read_error(const bj::object& body, int status);
// {"error": {"message", "type", "param", "code"}}.
bj::object error_object(const AnswerError& error);

// Members of an object, leniently: what is absent or of another type is empty.
std::string_view text_member(const bj::object& object, std::string_view name);
int64_t count_member(const bj::object& object, std::string_view name);
const bj::object* object_member(const bj::object& object, std::string_view name);
const bj::array* array_member(const bj::object& object, std::string_view name);

}  // namespace troupe
