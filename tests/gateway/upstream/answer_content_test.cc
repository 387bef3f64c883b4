// Events and whole answers of foreign workers that are answers, in the forms of their APIs.

#include "gateway/upstream/answer_content.h"

#include <gtest/gtest.h>

#include "gateway/upstream/stream_events.h"

namespace troupe {
namespace answer_content_test {

using Form = AnswerForm;

EventKind kind_of(const std::string& data, Form form) {
  const EventKind kind = kind_of_event("data: " + data + "\n\n", form);
  EXPECT_EQ(kind_of_event("event: x\r\ndata:" + data + "\r\n\r\n", form), kind) << data;
  return kind;
}

std::string choice(const std::string& members) {
  return R"({"id":"c","choices":[{"index":0,)" + members + "}]}";
}

TEST(EventKind, ChunksOfCompletions) {
  for (const char* members : {R"("delta":{"role":"assistant"})",
                              R"("delta":{"role":"assistant","content":""},"finish_reason":null)",
                              R"("delta":{"content":null,"tool_calls":[],"prefix":false},"finish_reason":"")",
                              R"("text":"")", R"("delta":{},"logprobs":null)"})
    EXPECT_EQ(kind_of(choice(members), Form::kCompletion), EventKind::kFrame) << members;
  for (const char* members :
       {R"("delta":{"content":" "})", R"("delta":{"reasoning_content":"a"})", R"("delta":{"reasoning":"a"})",
        R"("delta":{"tool_calls":[{"index":0}]})", R"("delta":{"function_call":{"name":"f"}})",
        R"("delta":{"refusal":"no"})", R"("text":"a")", R"("delta":{},"finish_reason":"stop")",
        R"("text":"","finish_reason":"length")", R"("message":{"content":"a"})"})
    EXPECT_EQ(kind_of(choice(members), Form::kCompletion), EventKind::kContent) << members;
  EXPECT_EQ(kind_of(R"({"choices":[],"prompt_filter_results":[{"a":1}]})", Form::kCompletion),
            EventKind::kFrame);
  EXPECT_EQ(kind_of(R"({"id":"c","usage":{"prompt_tokens":1}})", Form::kCompletion), EventKind::kFrame);
  EXPECT_EQ(kind_of("[DONE]", Form::kCompletion), EventKind::kEnd);
  EXPECT_EQ(kind_of(R"({"error":{"message":"a"}})", Form::kCompletion), EventKind::kError);
  EXPECT_EQ(kind_of(R"({"choices":[],"error":{}})", Form::kCompletion), EventKind::kFrame);
  EXPECT_EQ(kind_of(R"({"choices":[null]})", Form::kCompletion), EventKind::kFrame);
  EXPECT_EQ(kind_of(R"({"detail":"no engine"})", Form::kCompletion), EventKind::kError);
  EXPECT_EQ(kind_of(R"({"choices":[{"delta":{"content":"a)", Form::kCompletion), EventKind::kFrame);
  EXPECT_EQ(kind_of(R"({"choices":[{"delta":{"content":"a"},"logprobs":NaN}]})", Form::kCompletion),
            EventKind::kContent);
  for (const char* unknown : {"{}", R"({"n":0})", "text", "[1]", R"({"token":{"text":"a"}})"})
    EXPECT_EQ(kind_of(unknown, Form::kCompletion), EventKind::kContent) << unknown;
}

TEST(EventKind, EventsOfResponses) {
  for (const char* type : {"response.created", "response.queued", "response.in_progress",
                           "response.output_item.added", "response.content_part.added"})
    EXPECT_EQ(
        kind_of(R"({"type":")" + std::string(type) + R"(","response":{"error":null}})", Form::kResponses),
        EventKind::kFrame)
        << type;
  EXPECT_EQ(kind_of(R"({"type":"response.output_text.delta","delta":""})", Form::kResponses),
            EventKind::kFrame);
  for (const char* event :
       {R"({"type":"response.output_text.delta","delta":"a"})",
        R"({"type":"response.reasoning_text.delta","delta":"a"})",
        R"({"type":"response.completed","response":{"error":null}})", R"({"type":"response.incomplete"})",
        R"({"type":"response.output_item.done","item":{}})"})
    EXPECT_EQ(kind_of(event, Form::kResponses), EventKind::kContent) << event;
  for (const char* event : {R"({"type":"error","code":"server_error","message":"a"})",
                            R"({"type":"response.failed","response":{"error":{"message":"a"}}})"})
    EXPECT_EQ(kind_of(event, Form::kResponses), EventKind::kError) << event;
}

TEST(EventKind, EventsOfMessages) {
  for (const char* event :
       {R"({"type":"message_start","message":{"content":[],"stop_reason":null}})",
        R"({"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}})",
        R"({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}})",
        R"({"type":"content_block_stop","index":0})",
        R"({"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":1}})"})
    EXPECT_EQ(kind_of(event, Form::kMessages), EventKind::kFrame) << event;
  for (const char* event :
       {R"({"type":"content_block_start","content_block":{"type":"tool_use","id":"t","input":{}}})",
        R"({"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}})",
        R"({"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{"}})",
        R"({"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"a"}})",
        R"({"type":"message_delta","delta":{"stop_reason":"end_turn"}})"})
    EXPECT_EQ(kind_of(event, Form::kMessages), EventKind::kContent) << event;
  EXPECT_EQ(kind_of(R"({"type":"ping"})", Form::kMessages), EventKind::kIdle);
  EXPECT_EQ(kind_of(R"({"type":"message_stop"})", Form::kMessages), EventKind::kEnd);
  EXPECT_EQ(kind_of(R"({"type":"error","error":{"type":"overloaded_error"}})", Form::kMessages),
            EventKind::kError);
}

TEST(EventKind, NothingIsComputedYet) {
  for (const Form form : {Form::kOther, Form::kCompletion, Form::kMessages})
    for (const char* event : {": a\n\n", "\n", "retry: 3\n\n", "id: 1\r\n\r\n", "event: a\n\n", "data:\n\n",
                              "event: ping\ndata: {\"choices\":1}\n\n", "event: keepalive\ndata: x\n\n"})
      EXPECT_EQ(kind_of_event(event, form), EventKind::kIdle) << event;
  EXPECT_EQ(kind_of(choice(R"("text":"")"), Form::kOther), EventKind::kContent) << "of no form that is known";
  EXPECT_EQ(kind_of("[DONE]", Form::kOther), EventKind::kContent);
}

const std::string kRole = "data: " + choice(R"("delta":{"role":"assistant"})") + "\n\n";
const std::string kText = "data: " + choice(R"("delta":{"content":"a"})") + "\n\n";
const std::string kError = "data: {\"error\":{\"message\":\"a\"}}\n\n";

TEST(StreamOpening, HoldsWhatComesBeforeContentAndKeepsTheOrder) {
  StreamOpening opening(Form::kCompletion);
  std::string piece = ": a\n\n";
  EXPECT_EQ(opening.take(piece), EventKind::kIdle);
  EXPECT_FALSE(opening.began());
  EXPECT_EQ(piece, "");
  piece = kRole;
  EXPECT_EQ(opening.take(piece), EventKind::kFrame);
  EXPECT_TRUE(opening.began());
  EXPECT_EQ(opening.held(), ": a\n\n" + kRole);
  piece = kRole + kText + kError;
  EXPECT_EQ(opening.take(piece), EventKind::kContent);
  EXPECT_EQ(piece, ": a\n\n" + kRole + kRole + kText + kError);
  EXPECT_TRUE(opening.passed());
}

TEST(StreamOpening, FindsAnErrorOrTheEndBeforeContent) {
  StreamOpening failed(Form::kCompletion), ended(Form::kCompletion);
  std::string piece = kRole + kError + kText;
  EXPECT_EQ(failed.take(piece), EventKind::kError);
  EXPECT_EQ(failed.error(), kError);
  EXPECT_FALSE(failed.passed());
  piece = kRole + "data: [DONE]\n\n";
  EXPECT_EQ(ended.take(piece), EventKind::kEnd);
}

TEST(StreamOpening, IsBounded) {
  StreamOpening opening(Form::kCompletion);
  std::string all, piece;
  while (!opening.passed() && all.size() < 2 * StreamOpening::kBytesMax) {
    all += kRole;
    piece = kRole;
    opening.take(piece);
  }
  EXPECT_EQ(piece, all);
  EXPECT_GT(all.size(), StreamOpening::kBytesMax);
  EXPECT_LE(all.size(), StreamOpening::kBytesMax + kRole.size());
}

TEST(EndsStream, ByTheFormsOwnEnd) {
  const std::string stop = "event: message_stop\ndata: {\"type\": \"message_stop\"}\n\n";
  const std::string reason =
      "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\": \"end_turn\"}}\n\n";
  const std::string completed = "data: {\"type\":\"response.completed\",\"response\":{}}\n\n";
  EXPECT_TRUE(ends_stream(stop, Form::kMessages, true));
  EXPECT_TRUE(ends_stream(reason, Form::kMessages, true));
  EXPECT_FALSE(ends_stream("data: {\"message\":{\"stop_reason\":null}}\n\n", Form::kMessages, true));
  EXPECT_FALSE(ends_stream(stop, Form::kResponses, true));
  EXPECT_TRUE(ends_stream(completed, Form::kResponses, true));
  EXPECT_TRUE(ends_stream("data: {\"type\":\"response.incomplete\"}\n\n", Form::kResponses, true));
  EXPECT_FALSE(ends_stream("data: {\"delta\":\"\\\"response.completed\\\"\"}\n\n", Form::kResponses, true));
  EXPECT_TRUE(ends_stream("data: [DONE]\n\n", Form::kResponses, true));
  EXPECT_FALSE(ends_stream(completed, Form::kCompletion, true));

  EXPECT_TRUE(contains_last_event(reason + stop, Form::kMessages));
  EXPECT_FALSE(contains_last_event(reason, Form::kMessages));
  EXPECT_FALSE(contains_last_event(stop + kText, Form::kMessages));
  EXPECT_TRUE(contains_last_event(completed, Form::kResponses));
  EXPECT_FALSE(contains_last_event(completed, Form::kCompletion));
  EXPECT_TRUE(contains_last_event("data: [DONE]\n\n", Form::kCompletion));
}

TEST(StreamEnd, OfSeveralChoicesIsTheLastOnesFinishReason) {
  const auto finishes = [](int index, const std::string& reason = "\"stop\"") {
    return R"(data: {"choices":[{"index":)" + std::to_string(index) + R"(,"finish_reason":)" + reason +
           "}]}\n\n";
  };
  StreamEnd end(Form::kCompletion, 2);
  EXPECT_FALSE(end.take(finishes(0, "null") + finishes(1, "\"\"")));
  EXPECT_FALSE(end.take(finishes(1)));
  EXPECT_FALSE(end.take(finishes(1))) << "the same choice again";
  EXPECT_FALSE(end.take(finishes(2))) << "it was not asked for";
  EXPECT_TRUE(end.take(": ping\n\n" + finishes(0)));
  EXPECT_TRUE(end.take("data: {\"usage\":{}}\n\n")) << "it stays";
  StreamEnd at_once(Form::kCompletion, 2);
  EXPECT_TRUE(at_once.take(
      R"(data: {"choices":[{"index":0,"finish_reason":"stop"},{"index":1,"finish_reason":"length"}]})"
      "\n\n"));
  StreamEnd one(Form::kCompletion, 1), done(Form::kCompletion, 3);
  EXPECT_TRUE(one.take(finishes(0)));
  EXPECT_TRUE(done.take("data: [DONE]\n\n"));
}

TEST(EndsAnswer, NotByAnEmptyFinishReason) {
  EXPECT_FALSE(ends_answer("data: {\"choices\":[{\"finish_reason\":\"\"}]}\n\n"));
  EXPECT_TRUE(ends_answer("data: {\"finish_reason\":\"\"}\n\ndata: {\"finish_reason\":\"stop\"}\n\n"));
}

TEST(WholeKind, OfEveryForm) {
  struct Case {
    Form form;
    WholeKind kind;
    std::string body;
  };
  const std::string large(100'000, 'x');
  for (const Case& one : {
           Case{Form::kCompletion, WholeKind::kAnswer, choice(R"("message":{"content":"a"})")},
           Case{Form::kCompletion, WholeKind::kAnswer, choice(R"("text":"","finish_reason":"stop")")},
           Case{Form::kCompletion, WholeKind::kAnswer, choice(R"("message":{"tool_calls":[{"id":"t"}]})")},
           Case{Form::kCompletion, WholeKind::kAnswer, " " + choice(R"("text":"a","logprobs":NaN)")},
           Case{Form::kCompletion, WholeKind::kAnswer, R"({"choices":[{"text":")" + large + R"("}]})"},
           Case{Form::kCompletion, WholeKind::kNone, ""},
           Case{Form::kCompletion, WholeKind::kNone, " \n"},
           Case{Form::kCompletion, WholeKind::kNone, "{}"},
           Case{Form::kCompletion, WholeKind::kNone, "[]"},
           Case{Form::kCompletion, WholeKind::kNone, "<html>" + large},
           Case{Form::kCompletion, WholeKind::kNone, R"({"choices":[]})"},
           Case{Form::kCompletion, WholeKind::kNone, R"({"choices":[null]})"},
           Case{Form::kCompletion, WholeKind::kNone, R"({"finish_reason":"stop"})"},
           Case{Form::kCompletion, WholeKind::kNone, choice(R"("text":"","finish_reason":"")")},
           Case{Form::kCompletion, WholeKind::kAnswer, choice(R"("text":"an error","finish_reason":"stop")")},
           Case{Form::kCompletion, WholeKind::kNone, R"({"choices":[{"message":{"content":"a)"},
           Case{Form::kCompletion, WholeKind::kNone, R"({"choices":[{"message":{"content":")" + large},
           Case{Form::kMessages, WholeKind::kNone, R"({"content":[{"type":"text","text":"a"}])"},
           Case{Form::kCompletion, WholeKind::kNone, R"({"choices":null,"error":null})"},
           Case{Form::kCompletion, WholeKind::kNone, choice(R"("message":{"content":null})")},
           Case{Form::kCompletion, WholeKind::kError, R"({"error":"a"})"},
           Case{Form::kCompletion, WholeKind::kError, R"({"object":"error","message":"a"})"},
           Case{Form::kResponses, WholeKind::kAnswer, R"({"object":"response","output":[],"error":null})"},
           Case{Form::kResponses, WholeKind::kAnswer, R"({"status":"queued"})"},
           Case{Form::kResponses, WholeKind::kNone, R"({"id":"r"})"},
           Case{Form::kResponses, WholeKind::kError, R"({"status":"failed","error":{"message":"a"}})"},
           Case{Form::kMessages, WholeKind::kAnswer, R"({"content":[{"type":"text","text":"a"}]})"},
           Case{Form::kMessages, WholeKind::kAnswer, R"({"content":[],"stop_reason":"end_turn"})"},
           Case{Form::kMessages, WholeKind::kNone, R"({"content":[],"stop_reason":null})"},
           Case{Form::kMessages, WholeKind::kError, R"({"type":"error","error":{"type":"api_error"}})"},
       })
    EXPECT_EQ(static_cast<int>(kind_of_whole(one.body, one.form)), static_cast<int>(one.kind))
        << one.body.substr(0, 80);
}

TEST(WholeKind, OfAPassedPath) {
  const std::string json = "application/json; charset=utf-8", page = "<!DOCTYPE html><p>502";
  const std::string large(100'000, 'x');
  struct Case {
    WholeKind kind;
    std::string type, body;
  };
  for (const Case& one : {
           Case{WholeKind::kAnswer, json, R"({"data":[],"error":null})"},
           Case{WholeKind::kAnswer, json, R"({"data":[{"text":"\"error\""}]})"},
           Case{WholeKind::kAnswer, json, "[[0.5]]"},
           Case{WholeKind::kAnswer, json, "[]"},
           Case{WholeKind::kAnswer, json, "\"text\""},
           Case{WholeKind::kAnswer, json, R"({"data":")" + large + "\"}\n"},
           Case{WholeKind::kAnswer, "", R"({"a":1})"},
           Case{WholeKind::kAnswer, "text/plain", "null"},
           Case{WholeKind::kAnswer, "text/plain", "\n"},
           Case{WholeKind::kAnswer, "text/plain; charset=utf-8", "{half of it"},
           Case{WholeKind::kAnswer, "text/vtt", "WEBVTT\n"},
           Case{WholeKind::kAnswer, "audio/mpeg", "<html>"},
           Case{WholeKind::kAnswer, "application/octet-stream", "{"},
           Case{WholeKind::kError, json, R"({"error":{"message":"a"}})"},
           Case{WholeKind::kNone, json, ""},
           Case{WholeKind::kNone, "audio/mpeg", ""},
           Case{WholeKind::kNone, "text/plain", ""},
           Case{WholeKind::kNone, json, " \n"},
           Case{WholeKind::kNone, json, "null\n"},
           Case{WholeKind::kNone, json, " { }"},
           Case{WholeKind::kNone, "", "{}"},
           Case{WholeKind::kNone, "Text/HTML; charset=utf-8", "it works"},
           Case{WholeKind::kNone, json, page},
           Case{WholeKind::kNone, "text/plain", "\n" + page},
           Case{WholeKind::kNone, "", "<HTML>" + large},
           Case{WholeKind::kNone, json, R"({"data":[{"embedding":[0.5,)"},
           Case{WholeKind::kNone, json, R"({"data":")" + large},
       })
    EXPECT_EQ(static_cast<int>(kind_of_passed(one.body, one.type)), static_cast<int>(one.kind))
        << one.type << " " << one.body.substr(0, 80);
  EXPECT_EQ(kind_of_passed(R"({"data":[)", json, true), WholeKind::kAnswer) << "more is to come";
}

TEST(WholeKind, OfABeginningWhoseRestIsToCome) {
  const std::string begin = R"({"choices":[{"message":{"content":")" + std::string(100'000, 'x');
  EXPECT_EQ(kind_of_whole(begin, Form::kCompletion, true), WholeKind::kAnswer);
  EXPECT_EQ(kind_of_whole(begin, Form::kCompletion, false), WholeKind::kNone) << "cut";
}

TEST(ParseErrorJson, ReadsEveryForm) {
  struct Case {
    std::string body, json;
    int status;
  };
  for (const Case& one : {
           Case{R"({"error":{"message":"a","code":429}})", R"({"error":{"message":"a","code":429}})", 429},
           Case{R"({"object":"error","message":"a","code":404})",
                R"({"error":{"object":"error","message":"a","code":404}})", 404},
           Case{R"({"type":"error","error":{"type":"overloaded_error","message":"a"}})",
                R"({"type":"error","error":{"type":"overloaded_error","message":"a"}})", 503},
           Case{R"({"type":"response.failed","response":{"error":{"code":"server_error","message":"a"}}})",
                R"({"error":{"code":"server_error","message":"a"}})", 502},
           Case{R"({"type":"error","code":"x","message":"a"})",
                R"({"error":{"type":"error","code":"x","message":"a"}})", 502},
       }) {
    const StreamError parsed = parse_error_json(one.body);
    EXPECT_EQ(parsed.json, one.json);
    EXPECT_EQ(parsed.status, one.status) << one.body;
  }
}

}  // namespace answer_content_test
}  // namespace troupe
