#pragma once

// Other programs' APIs over the same core: a request of Anthropic's, OpenAI's Responses, KoboldAI's,
// text-generation-webui's, tabbyAPI's or llama.cpp's form → the chat, the completion or the tokenizing that
// it asks for, in our own form; and that one's answer → the form in which its client reads it. Pure
// translation of bytes: no sockets, no clocks. Both programs put it around their own handlers
// (dialect_exchange.h), so that a translated request is routed, limited, resumed and counted as the chat that
// it is.
//
// A field that a dialect has under a name of its own becomes ours; one that ours has, too, is copied, and so
// are samplers, for the one strict parser to judge. Errors name the field as its client wrote it (`renames`).

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/api/error.h"
#include "common/dialects/answer.h"

namespace troupe {

// Says one answer in a dialect's form. A stream's events are appended to `out`, whole, framing included.
class DialectAnswer {
 public:
  virtual ~DialectAnswer() = default;
  // A whole answer (status 200).
  virtual std::string whole(const bj::object& body) = 0;
  // An error's body; OpenAI's form unless the dialect has another.
  virtual std::string error(const AnswerError& error) const { return to_json(error_object(error)); }
  // One chunk of a stream, its end ([DONE]), and an error in place of that.
  virtual void chunk(const AnswerPiece&, std::string&) {}
  virtual void end(std::string&) {}
  virtual void fail(const AnswerError& error, std::string& out);
  // The stream's text so far, for a dialect that collects it.
  virtual std::string text_so_far() const { return {}; }
};

// Names of fields: ours → the client's, of a path's beginning ("messages[2]" → "messages[1].content[0]"). The
// longest that fits counts.
// (A '!' before the client's name: its flag says the opposite.)
using Renames = std::vector<std::pair<std::string, std::string>>;

struct TranslatedRequest {
  std::string method = "POST";
  std::string path;   // ours
  std::string body;   // ours
  std::string model;  // that it names; empty: none
  std::unique_ptr<DialectAnswer> answer;
  Renames renames;
  // The answer is asked for as a stream and given as a whole, so that it can be looked at and ended
  // meanwhile.
  bool collects = false;
  std::string generation_key;  // by which others of the client's requests look at it or end it; empty: none
  // Its question about such a generation, once the client is known.
  enum class Control : uint8_t { kNone, kCheck, kAbort, kPerf } control = Control::kNone;
};

// Gives an error the client's names of fields.
void rename_fields(const Renames& renames, AnswerError& error);

}  // namespace troupe
