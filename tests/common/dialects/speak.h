#pragma once

// The tests of dialects share this: requests translated and read by the core's own parser, and streams of
// ours said in a dialect, cut anywhere.

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/api/api.h"
#include "common/dialects/routes.h"
#include "common/dialects/translator.h"

namespace troupe::dialects_test {

inline ApiResult<TranslatedRequest> translate(std::string_view path, std::string_view body) {
  const DialectRoute* route = find_dialect("POST", path);
  if (route == nullptr) return ApiError::bad_field("", "no dialect has " + std::string(path));
  return route->translate(path, body);
}

// The core's request of a body that must be fine.
inline GenerateRequest core_request(std::string_view path, std::string_view body) {
  auto translated = translate(path, body);
  if (!translated.ok()) {
    ADD_FAILURE() << translated.error().message;
    return {};
  }
  auto parsed = translated->path == "/v1/completions" ? parse_completion_request(translated->body)
                                                      : parse_chat_request(translated->body);
  if (!parsed.ok()) {
    ADD_FAILURE() << parsed.error().message;
    return {};
  }
  return *std::move(parsed);
}

// The error of a body, as its client reads it, by whichever parser it is.
inline AnswerError refusal(std::string_view path, std::string_view body) {
  auto translated = translate(path, body);
  AnswerError out;
  const auto take = [&out](const ApiError& error) {
    out = {error.http_status, error.message, error.type, error.param, error.code};
  };
  if (!translated.ok()) {
    take(translated.error());
    return out;
  }
  auto parsed = translated->path == "/v1/completions" ? parse_completion_request(translated->body)
                                                      : parse_chat_request(translated->body);
  if (parsed.ok()) {
    ADD_FAILURE() << "accepted: " << body;
    return out;
  }
  take(parsed.error());
  rename_fields(translated->renames, out);
  return out;
}

// A stream of ours in the dialect, its bytes cut every `step` of them; 0: not at all.
inline std::string said(DialectAnswer& answer, std::string_view stream, size_t step = 0) {
  const Renames none;
  AnswerTranslator translator(answer, none);
  std::string out;
  if (step == 0) step = stream.size();
  for (size_t at = 0; at < stream.size(); at += step) translator.feed(stream.substr(at, step), out);
  return out;
}

// A chat's stream: the deltas, each as JSON, then the finish, the usage and [DONE].
inline std::string chat_stream(const std::vector<std::string>& deltas, std::string_view finish) {
  const std::string head =
      R"(data: {"id":"chatcmpl-ab12","object":"chat.completion.chunk","created":7,"model":"m",)";
  const std::string usage =
      R"("usage":{"prompt_tokens":20,"completion_tokens":3,"total_tokens":23,"prompt_tokens_details":{"cached_tokens":16}}})";
  std::string out = ": hb\n\n";
  for (const std::string& delta : deltas)
    out += head + R"("choices":[{"index":0,"delta":)" + delta +
           R"(,"logprobs":null,"finish_reason":null}],)" + usage + "\n\n";
  out += head + R"("choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":")" +
         std::string(finish) + "\"}]," + usage + "\n\n";
  return out + head + "\"choices\":[]," + usage + "\n\ndata: [DONE]\n\n";
}

// The named events of a stream.
inline std::vector<std::string> names_of(std::string_view events) {
  std::vector<std::string> names;
  SseParser parser;
  EXPECT_TRUE(parser.feed(events, [&](const SseEvent& event) { names.push_back(event.event); }).ok());
  return names;
}

inline bj::array data_of(std::string_view events) {
  bj::array out;
  SseParser parser;
  EXPECT_TRUE(parser
                  .feed(events,
                        [&](const SseEvent& event) {
                          auto value = parse_json(event.data);
                          EXPECT_TRUE(value.ok()) << event.data;
                          out.push_back(value.ok() ? *std::move(value) : bj::value());
                        })
                  .ok());
  return out;
}

}  // namespace troupe::dialects_test
