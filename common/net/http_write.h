#pragma once

// Serialises heads, for both ends. Written by hand: a head is a few appends, and every name and value is
// checked, so an echoed value cannot split an answer. No Asio.

#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

#include "common/net/http_head.h"
#include "common/net/http_message.h"

namespace troupe {

std::string_view status_reason(int status);

struct AnswerHeadSpec {
  int status = 200;
  const HeaderList* headers = nullptr;  // headers about framing and the connection are skipped
  const HeaderList* more = nullptr;     // after those, the same
  BodyFraming framing = BodyFraming::kLength;
  uint64_t content_length = 0;
  bool keep_alive = true;
  bool http_1_0 = false;
  std::string_view date;
};

// Throws std::invalid_argument, naming the header, for a name or value that must not be sent.
void append_answer_head(std::string& out, const AnswerHeadSpec& spec);

struct RequestHeadSpec {
  std::string_view method;
  std::string_view target;
  std::string_view authority;
  const HeaderList* headers = nullptr;
  uint64_t content_length = 0;
};

// The same for a request. A bodiless GET or HEAD has no Content-Length.
void append_request_head(std::string& out, const RequestHeadSpec& spec);

void append_chunk_head(std::string& out, size_t bytes);

// Formats "Sun, 06 Nov 1994 08:49:37 GMT", once a second.
class HttpDate {
 public:
  std::string_view at(std::time_t now);

 private:
  std::time_t made_for_ = -1;
  std::string text_;
};

}  // namespace troupe
