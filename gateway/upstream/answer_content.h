#pragma once

// Recognises the part of a foreign worker's answer that is an answer. A server that is ill often says so
// after its head: by an error event, by a role and the end, by a 200 with an error in it. Until some content
// has come the request can still go to another worker, so the events before it are held.
//
//   content   text, reasoning, tool calls, a finish reason (a model may answer nothing), and every event of a
//             form that is not known here: a stream that is not understood is passed on, not judged
//   frame     of an answer: the role, empty deltas, usage, message_start, response.created, …; and cut JSON,
//             which no client could read
//   idle      comments, pings, retry: what comes while nothing is computed yet
//
// A whole answer is judged by the same notion.

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace troupe {

// The APIs whose answers are known here.
enum class AnswerForm : uint8_t {
  kOther,
  kCompletion,  // chats and completions
  kResponses,   // POST /v1/responses
  kMessages,    // POST /v1/messages
};
// The form of a path that is passed on as it came.
AnswerForm form_of_passed(std::string_view path);

enum class EventKind : uint8_t {
  kIdle,
  kFrame,
  kContent,
  kError,
  kEnd,  // the stream's, which says nothing else
};
// `event`: one, whole.
EventKind kind_of_event(std::string_view event, AnswerForm form);

// The events of one stream up to its first content. Not thread-safe.
class StreamOpening {
 public:
  // A stream that has sent more than that without content is passed on as it is. (A response.created repeats
  // the request's instructions and tools.)
  static constexpr size_t kBytesMax = size_t{256} << 10;

  explicit StreamOpening(AnswerForm form) : form_(form) {}
  // Takes whole events. kContent: content has come, `piece` is all that came, in order, and from here on no
  // more is held. Otherwise `piece` is held, and empty. kError, kEnd: that came first, so there is no answer.
  EventKind take(std::string& piece);
  bool passed() const { return passed_; }
  // More than idle events have come: the worker has begun.
  bool began() const { return began_; }
  const std::string& held() const { return held_; }
  const std::string& error() const { return error_; }

 private:
  const AnswerForm form_;
  bool passed_ = false, began_ = false;
  std::string held_, error_;
};

// These whole events end an answer: by its last event, or the finish reason of its one choice.
bool ends_stream(std::string_view events, AnswerForm form, bool one_choice);
// The end of one stream's answer: as above, or the finish reasons of all its choices, one after the other.
// Not thread-safe.
class StreamEnd {
 public:
  // `choices`: that were asked for.
  StreamEnd(AnswerForm form, int64_t choices) : form_(form), choices_(choices) {}
  // Takes whole events. Returns came().
  bool take(std::string_view events);
  bool came() const { return came_; }

 private:
  void count_finished(std::string_view events);

  const AnswerForm form_;
  const int64_t choices_;
  bool came_ = false;
  std::set<int64_t> finished_;  // indices of choices
};

// The last of these whole events is the form's last: a client that has it may close.
bool contains_last_event(std::string_view events, AnswerForm form);

enum class WholeKind : uint8_t {
  kAnswer,
  kError,  // its JSON is an error: parse_error_json()
  kNone,   // empty, cut, a web page, {}, no choices, a message without content or finish reason
};
// A 2xx of this type at a path whose answers are not known here is no text that could say what failed: sound,
// a picture. It is passed on as it comes.
bool is_media(std::string_view content_type);
// The body of a 2xx of a form that is known here. What is long is an answer. `is_begin`: more of it is to
// come.
WholeKind kind_of_whole(std::string_view body, AnswerForm form, bool is_begin = false);
// The same of AnswerForm::kOther: what is not empty, a web page, null or {}, a cut object or an error is an
// answer, of whatever members, and so is any text or media.
WholeKind kind_of_passed(std::string_view body, std::string_view content_type, bool is_begin = false);

}  // namespace troupe
