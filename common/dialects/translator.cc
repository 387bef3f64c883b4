#include "common/dialects/translator.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe {
namespace {

AnswerError not_understood() {
  AnswerError error;
  error.status = 502;
  error.type = "server_error";
  error.code = "bad_gateway";
  error.message = "the worker's answer was not understood";
  return error;
}

}  // namespace

std::string AnswerTranslator::whole(int& status, std::string_view body) const {
  const auto value = parse_json(body);
  const bj::object* fields = value.ok() ? value->if_object() : nullptr;
  std::optional<AnswerError> error;
  if (fields != nullptr) {
    error = read_error(*fields, status >= 400 ? status : 0);
  } else if (status >= 400) {
    error.emplace();
    error->status = status;
    error->type = "server_error";
    error->message = std::string(body.substr(0, 1024));
    if (!is_valid_utf8(error->message) || body.empty())
      error->message = absl::StrCat("the worker answered ", status);
  } else {
    error = not_understood();
  }
  if (!error) return answer_.whole(*fields);
  status = error->status;
  rename_fields(renames_, *error);
  return answer_.error(*error);
}

void AnswerTranslator::feed(std::string_view bytes, std::string& out) {
  const Status fed = parser_.feed(
      bytes, [&](const SseEvent& event) { take_event(event, out); },
      [&](std::string_view comment) {
        if (!ended_ && passes_comments_) absl::StrAppend(&out, ":", to_absl(comment), "\n\n");
      });
  if (!fed.ok() && !ended_) fail(not_understood(), out);
}

void AnswerTranslator::take_event(const SseEvent& event, std::string& out) {
  if (ended_) return;
  if (event.data == "[DONE]") {
    ended_ = true;
    answer_.end(out);
    return;
  }
  const auto value = parse_json(event.data);
  const bj::object* fields = value.ok() ? value->if_object() : nullptr;
  if (fields == nullptr) return fail(not_understood(), out);
  if (auto error = read_error(*fields, 0)) return fail(*std::move(error), out);
  answer_.chunk(read_answer(*fields), out);
}

void AnswerTranslator::fail(AnswerError error, std::string& out) {
  ended_ = true;
  rename_fields(renames_, error);
  answer_.fail(error, out);
  failed_ = std::move(error);
}

}  // namespace troupe
