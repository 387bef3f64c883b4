#pragma once

// The use that one request made, as it is exported and summed up: numbers and names, no text of clients or
// models. Pure.

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

// Tokens that a client pays for. `counted`: by the worker; else about, of an answer that was broken off or
// whose worker tells no usage.
struct SpentTokens {
  int64_t prompt = 0;
  int64_t cached = 0;  // of the prompt
  int64_t completion = 0;
  int64_t reasoning = 0;  // of the completion
  bool counted = false;
  int64_t total() const { return prompt + completion; }
};

// Views, valid during a call; empty: absent.
struct UsageRecord {
  int64_t unix_ms = 0;  // when it ended
  std::string_view request_id;
  std::string_view key;
  std::string_view tenant;
  std::string_view end_user;
  std::string_view path;
  std::string_view model;  // as asked for
  std::string_view arm;    // the model that it was routed to, where that is another
  std::string_view set;    // the persona's hash
  std::string_view node;   // that answered
  std::string_view end;    // answered, refused, broken, cancelled
  std::string_view why;
  std::string_view finish;
  std::string_view verdict;  // of moderation, where it had one
  bool stream = false;
  int status = 0;
  int64_t attempts = 0;
  SpentTokens tokens;
  double ttft_ms = -1;  // negative: no byte came
  double duration_ms = 0;
};

// A line of JSON, without its end: fields always in the same order, those without a value are null.
std::string usage_line(const UsageRecord& record);

}  // namespace troupe
