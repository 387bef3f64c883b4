#pragma once

// The way back: our answer's bytes, however they are cut, → a dialect's. Pure.

#include <string>
#include <string_view>

#include "common/api/sse.h"
#include "common/dialects/dialect.h"

namespace troupe {

class AnswerTranslator {
 public:
  AnswerTranslator(DialectAnswer& answer, const Renames& renames, bool passes_comments = true)
      : answer_(answer), renames_(renames), passes_comments_(passes_comments) {}

  // A whole answer's body. An answer that is not understood becomes an error, and `status` with it.
  std::string whole(int& status, std::string_view body) const;
  // Pieces of a stream: appends whole events. Comments pass. After the end nothing more comes.
  void feed(std::string_view bytes, std::string& out);
  // The stream had its end: [DONE], or an error.
  bool ended() const { return ended_; }
  // The error that ended it; nullopt: it ended well, or not yet.
  const std::optional<AnswerError>& failed() const { return failed_; }

 private:
  void take_event(const SseEvent& event, std::string& out);
  void fail(AnswerError error, std::string& out);

  DialectAnswer& answer_;
  const Renames& renames_;
  const bool passes_comments_;
  SseParser parser_{16u << 20};
  bool ended_ = false;
  std::optional<AnswerError> failed_;
};

}  // namespace troupe
