#pragma once

// Texts that moderation judges, and what becomes of them: verdicts of a service, windows of an answer's text,
// and the events that are held until their text has a verdict. Pure: the service is asked elsewhere
// (proxy/moderation_hook.h).
//
// A window ends with the first sentence that ends after `window_bytes`, or where a text has none, at a space
// before four times as many. Where windows end depends on the text alone, however it is cut into pieces.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

struct ModerationVerdict {
  enum class Kind : uint8_t {
    kAllow,
    kAnnotate,  // passes, with `note`
    kRedact,    // `text` takes its place
    kBlock,     // nor anything after it
  };
  Kind kind = Kind::kAllow;
  std::string text;
  std::string note;
};
std::string_view verdict_name(ModerationVerdict::Kind kind);

// {"verdict": "allow|annotate|redact|block", "text": …, "note": …}; nullopt: it is none.
std::optional<ModerationVerdict> parse_verdict(std::string_view json);
// The answer of /v1/moderations: flagged is `flagged`; its note the categories that are.
std::optional<ModerationVerdict> parse_openai_moderation(std::string_view json,
                                                         ModerationVerdict::Kind flagged);

class SentenceWindows {
 public:
  // REQUIRES: window_bytes > 0.
  explicit SentenceWindows(size_t window_bytes) : least_(window_bytes), most_(4 * window_bytes) {}
  void feed(std::string_view piece) { text_ += piece; }
  // The next window that is whole; nullopt: its end is not known yet.
  std::optional<std::string> next();
  // The rest at the text's end, perhaps nothing.
  std::string rest();

 private:
  size_t end_of_window() const;  // 0: not known yet

  const size_t least_, most_;
  std::string text_;      // after the last window
  size_t looked_at_ = 0;  // of it, for the end of a sentence
};

// The text of a stream's event: of a chat's or a completion's first choice that it is about. Thoughts are
// text, too.
struct EventText {
  int64_t choice = 0;
  std::string text;
  std::string calls;  // names and arguments of tool calls, after the text
  bool ends = false;  // the choice has its finish reason with it
};
EventText text_of_event(std::string_view event);
// The event with another text in its place.
std::string with_event_text(std::string_view event, std::string_view text);

// Events in their order, each let go once all windows of its text have a verdict; without logprobs and token
// ids, which would say a redacted text.
class HeldEvents {
 public:
  // `whole`: the window is a choice's whole text.
  HeldEvents(size_t window_bytes, bool whole) : window_bytes_(window_bytes), whole_(whole) {}

  // REQUIRES: one event, whole.
  void take(std::string_view event);
  // The stream has ended: what is left of every choice is a window.
  void end();

  struct Window {
    int64_t choice = 0;
    std::string text;
    bool has_calls = false;  // a tool call's name or arguments: another text cannot take its place
  };
  // The next window that wants a verdict. REQUIRES: the last one got it.
  std::optional<Window> next_window();
  // REQUIRES: of the last next_window(), and not kBlock; of one with calls not kRedact.
  void verdict(const ModerationVerdict& verdict);
  // Events that may go now, and comments with the notes of their windows.
  std::string release();
  // A JSON chunk of the stream, for one that ends it; empty: none came.
  const std::string& last_chunk() const { return last_chunk_; }
  size_t held_bytes() const { return held_bytes_; }

 private:
  struct Judged {
    uint64_t begin = 0, end = 0;  // of the choice's text
    std::optional<std::string> instead;
  };
  struct Choice {
    explicit Choice(size_t window_bytes) : windows(window_bytes) {}
    SentenceWindows windows;
    uint64_t came = 0;    // bytes of its text
    uint64_t asked = 0;   // of them in windows
    uint64_t judged = 0;  // of them with a verdict
    bool ended = false;
    std::deque<Judged> verdicts;                      // those that events held still need
    std::deque<std::pair<uint64_t, uint64_t>> calls;  // where they are
  };
  struct Held {
    std::string event;
    int64_t choice = 0;
    uint64_t begin = 0, text_end = 0, end = 0;  // its calls come after its text
  };
  std::optional<Window> window_of(int64_t index, Choice& choice);
  std::string event_to_send(const Held& held);

  const size_t window_bytes_;
  const bool whole_;
  std::map<int64_t, Choice> choices_;
  std::deque<Held> held_;
  size_t held_bytes_ = 0;
  std::optional<int64_t> asked_choice_;
  std::string last_chunk_, notes_;
};

// The texts of a whole answer's choices, by place.
std::vector<std::string> texts_of_answer(std::string_view body);
// The answer with other texts (nullopt: its own) and then no logprobs, and with finish_reason content_filter
// where a text was blocked, or one with tool calls was to be another, whose choice then has none.
struct JudgedText {
  std::optional<std::string> instead;
  bool blocked = false;
};
std::string with_answer_texts(std::string_view body, const std::vector<JudgedText>& judged);

// The last event of a stream that is blocked, made from a chunk of it, and [DONE].
std::string blocked_events(std::string_view chunk, int64_t choice);

}  // namespace troupe
