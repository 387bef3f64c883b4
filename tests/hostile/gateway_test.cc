// The gateway's own reading of bodies and streams takes time in proportion to them.

#include <boost/json/object.hpp>

#include "common/api/api.h"
#include "common/json/json.h"
#include "gateway/proxy/json_patch.h"
#include "gateway/route/key/prefix_key.h"
#include "gateway/upstream/answer_content.h"
#include "gateway/upstream/resume_filter.h"
#include "gateway/upstream/stream_events.h"
#include "gateway/upstream/usage.h"
#include "tests/hostile/cpu_growth.h"

namespace troupe {
namespace hostile_gateway_test {

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

TEST(HostileTexts, BodiesAtTheGateway) {
  expect_linear("with_members", hostile_texts(), [](const std::string& text) {
    const JsonPatch patch[] = {{"model", "\"m\""}};
    EXPECT_FALSE(
        with_members("{\"a\":" + json_string(text) + ",\"b\":[" + json_string(text) + "]}", patch).empty());
    EXPECT_FALSE(with_members("{" + text, patch).empty());
  });
  expect_linear("prefix keys", hostile_texts(), [](const std::string& text) {
    GenerateRequest request;
    request.kind = GenerateRequest::Kind::kCompletion;
    request.prompt = text;
    EXPECT_FALSE(route::make_prefix_key(request, text).session.is_zero());
    request.kind = GenerateRequest::Kind::kChat;
    for (size_t at = 0; at < text.size(); at += 64) {
      ChatMessage& message = request.messages.emplace_back();
      message.role = request.messages.size() % 2 == 0 ? Role::kAssistant : Role::kUser;
      message.content = text.substr(at, 64);
    }
    EXPECT_TRUE(route::make_prefix_key(request, "").chat);
  });
}

std::vector<HostileText> streams() {
  std::vector<HostileText> all = hostile_texts();
  for (const HostileText& bytes : hostile_bytes()) all.push_back(bytes);
  for (const char* unit :
       {"data: a\n\n", "data: a\r\n\r\n", ": hb\n\n", "data: {\"error\"\n\n", "data: \"error\"\n",
        "error:\n\n", "event: error\n\n", "data: {\"choices\":[{\"text\":\"error\"}]}\n\n",
        "\"finish_reason\" : ", "\"stop_reason\" : ", "\"message_stop\" ", "event: ping\n\n", "data: {}\n\n",
        "data: {\"choices\":[]}\n\n", "data: {\"choices\":[],\"troupe\":{\"ids\":[1]}}\n\n",
        "data: {\"troupe\":{\"ids\":[1,", "{\"usage\":", "\"usage\" : {", "gggg"})
    all.push_back({unit, "data: error\n\n", unit, "\n\n"});
  return all;
}

TEST(HostileTexts, StreamsAtTheGateway) {
  expect_linear("events", streams(), [](const std::string& text) {
    static_cast<void>(whole_events(text));
    static_cast<void>(error_event(text));
    static_cast<void>(parse_error_event(text));
    static_cast<void>(ends_answer(text));
    static_cast<void>(contains_done(text));
    for (const AnswerForm form : {AnswerForm::kOther, AnswerForm::kCompletion, AnswerForm::kMessages}) {
      StreamOpening opening(form);
      std::string events = text;
      opening.take(events);
      static_cast<void>(ends_stream(text, form, true));
      static_cast<void>(contains_last_event(text, form));
      static_cast<void>(kind_of_whole(text, form));
      static_cast<void>(kind_of_whole("{\"error\":" + text, form));
      static_cast<void>(kind_of_passed("{\"error\":" + text, "application/json"));
    }
  });
  expect_linear("resume", streams(), [](const std::string& text) {
    ResumeTap tap(/*one_choice=*/true);
    std::string events = text;
    tap.cut(events);
  });
  for (const size_t piece : {size_t{1}, size_t{1000}}) {
    expect_linear("whole events", streams(), [&](const std::string& text) {
      EventHold hold(64u << 20);
      for (size_t at = 0; at < text.size(); at += piece) {
        std::string events = text.substr(at, piece);
        hold.keep_whole(events);
      }
    });
    expect_linear("usage", streams(), [&](const std::string& text) {
      UsageTap tap;
      for (size_t at = 0; at < text.size(); at += piece) tap.feed(std::string_view(text).substr(at, piece));
      static_cast<void>(tap.counts());
    });
  }
}

}  // namespace hostile_gateway_test
}  // namespace troupe
