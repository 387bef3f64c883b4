#include "gateway/upstream/resume_filter.h"

#include <gtest/gtest.h>

#include "common/api/error.h"
#include "common/json/json.h"

namespace troupe {
namespace resume_tap_test {

std::string chunk(const std::string& text, const std::string& rest, const std::string& finish = "null",
                  const std::string& id = "chatcmpl-1") {
  return R"(data: {"id":")" + id +
         R"(","object":"chat.completion.chunk","created":77,"model":"m","choices":)" +
         R"([{"index":0,"delta":{"content":")" + text + R"("},"logprobs":null,"finish_reason":)" + finish +
         "}]" + rest + "}\n\n";
}

std::string told(const std::string& ids, const std::string& seed = "") {
  return R"(,"troupe":{"ids":[)" + ids + "]" + (seed.empty() ? "" : ",\"seed\":" + seed) + "}";
}

std::string cut(ResumeTap& tap, std::string events) {
  tap.cut(events);
  return events;
}

constexpr const char* kUsage = "data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"prompt_tokens\":4}}\n\n";

TEST(ResumeTap, ClientsGetTheStreamTheyWouldGetWithoutIt) {
  ResumeTap tap(true);
  const std::string with = ": hb\n\n" + chunk("", told("", "42")) + ": hb\n\n: hb\n\n" +
                           chunk("a", told("8,15")) + chunk("b", ",\"usage\":null" + told("16")) +
                           chunk("", told("2"), "\"stop\"") + kUsage + "data: [DONE]\n\n";
  const std::string without = chunk("", "") + chunk("a", "") + chunk("b", ",\"usage\":null") +
                              chunk("", "", "\"stop\"") + kUsage + "data: [DONE]\n\n";
  EXPECT_EQ(cut(tap, with), without);
  EXPECT_TRUE(tap.heartbeats() && tap.done() && tap.resumable());
  EXPECT_EQ(tap.ids_delivered(), 4u);
}

std::string counted(const std::string& prompt, const std::string& completion, const std::string& cached) {
  return R"(,"prompt_tokens":)" + prompt + R"(,"completion_tokens":)" + completion + R"(,"cached_tokens":)" +
         cached + "}";
}

// A member with ids, and the counts of the answer.
std::string told_last(const std::string& ids, const std::string& counts, const std::string& seed = "") {
  std::string member = told(ids, seed);
  member.pop_back();
  return member + counts;
}

TEST(ResumeTap, LastChunkHasTheCounts) {
  ResumeTap tap(true);
  cut(tap, chunk("a", told("8", "1")));
  EXPECT_FALSE(tap.counts());
  EXPECT_EQ(cut(tap, chunk("", told_last("2", counted("30", "2", "16")), "\"stop\"") + "data: [DONE]\n\n"),
            chunk("", "", "\"stop\"") + "data: [DONE]\n\n");
  EXPECT_TRUE(tap.resumable());
  EXPECT_EQ(tap.ids_delivered(), 2u);
  ASSERT_TRUE(tap.counts());
  EXPECT_EQ(tap.counts()->prompt_tokens, 30);
  EXPECT_EQ(tap.counts()->completion_tokens, 2);
  EXPECT_EQ(tap.counts()->cached_tokens, 16);
  EXPECT_TRUE(tap.counts()->has_cached);
  // An answer of one chunk has all at once; of several choices the last one's last chunk has them.
  ResumeTap at_once(false);
  const std::string all = chunk("a", told_last("2", counted("1", "1", "0"), "5"), "\"stop\"");
  EXPECT_EQ(cut(at_once, all), chunk("a", "", "\"stop\""));
  ASSERT_TRUE(at_once.counts());
  EXPECT_EQ(at_once.counts()->prompt_tokens, 1);
}

TEST(ResumeTap, CountsAreOfTheLastWorkerThatComputed) {
  ResumeTap tap(true);
  cut(tap, chunk("a", told("8", "1")));
  const std::string end = chunk("", told_last("2", counted("30", "2", "16"), "1"), "\"stop\"");
  cut(tap, end);
  tap.next_worker(true);
  EXPECT_FALSE(tap.counts()) << "another worker's";
  cut(tap, end);
  EXPECT_FALSE(tap.counts()) << "of an answer that had ended before";
  ResumeTap strays(true);
  cut(strays, chunk("a", told("8", "1")));
  strays.next_worker(true);
  cut(strays, chunk("", told_last("2", counted("30", "2", "16"), "1"), "\"stop\"", "chatcmpl-2"));
  EXPECT_TRUE(strays.diverged());
  EXPECT_FALSE(strays.counts());
}

TEST(ResumeTap, ResumeBodyNamesAllTokensSoFar) {
  ResumeTap tap(true);
  cut(tap, chunk("a", told("8", "18446744073709551615"), "null", "chat\\\"1"));
  cut(tap, chunk("b", told("15,16")));
  const std::string body = tap.resume_body("{\"messages\":[{\"role\":\"user\"}] } ");
  EXPECT_EQ(body,
            R"({"messages":[{"role":"user"}] ,"troupe_resume":{"ids":[8,15,16],"seed":18446744073709551615,)"
            R"("id":"chat\"1","created":77}} )");
  EXPECT_TRUE(parse_json(std::string_view(body).substr(0, body.size() - 1)).ok());
}

TEST(ResumeTap, TextThatLooksLikeAMemberPasses) {
  const std::string quoted = R"(,\"troupe\":{\"ids\":[1]}})";
  for (const std::string& other :
       {chunk(quoted, ""), chunk("a", R"(,"more":{"a":1,"troupe":{"ids":[1]}})"),
        chunk("a", R"(,"troupe":{"ids":[-1]})"), chunk("a", R"(,"troupe":{"ids":[1,]})"),
        chunk("a", R"(,"troupe":{"ids":[1],"more":2})"), chunk("a", R"(,"troupe":{"ids":[99999999999]})"),
        chunk("a", told_last("1", counted("30", "2", "31"))),
        chunk("a", told_last("1", counted("-1", "2", "-1"))),
        chunk("a", told_last("1", counted("30", "-2", "0"))),
        chunk("a", told_last("1", counted("30", "2", "1.5"))),
        chunk("a", told_last("1", R"(,"prompt_tokens":30})")), chunk("a", R"(,"troupe":{})"),
        chunk("a", R"(,"troupe":3)")}) {
    ResumeTap tap(true);
    cut(tap, chunk("a", told("8", "1")));
    EXPECT_TRUE(tap.resumable());
    EXPECT_EQ(cut(tap, other), other);
    EXPECT_FALSE(tap.resumable()) << other;
    EXPECT_EQ(tap.ids_delivered(), 0u);
    EXPECT_EQ(tap.tokens_delivered(), 1u);
    EXPECT_FALSE(tap.counts());
  }
  ResumeTap tap(true);
  EXPECT_EQ(cut(tap, chunk(quoted, told("8", "1"))), chunk(quoted, ""));
  EXPECT_TRUE(tap.resumable());
}

TEST(ResumeTap, ForeignStreamPassesUnaltered) {
  ResumeTap tap(true);
  const std::string events = ": ping\n\n" + chunk("a", "") + "event: x\ndata: {}\n\ndata: [DONE]\n\n";
  EXPECT_EQ(cut(tap, events), events);
  EXPECT_FALSE(tap.heartbeats());
  EXPECT_FALSE(tap.resumable());
  EXPECT_TRUE(tap.done());
}

TEST(ResumeTap, SeveralChoicesAreNotResumable) {
  ResumeTap tap(false);
  EXPECT_EQ(cut(tap, chunk("a", told("8", "1"))), chunk("a", ""));
  EXPECT_TRUE(tap.heartbeats());
  EXPECT_FALSE(tap.resumable());
  tap.next_worker(false);
  EXPECT_EQ(cut(tap, chunk("b", told("8", "1"), "null", "chatcmpl-2")), chunk("b", "", "null", "chatcmpl-2"));
  EXPECT_FALSE(tap.diverged());
}

TEST(ResumeTap, MissingSeedOrIdentityIsNotResumable) {
  ResumeTap no_seed(true), no_id(true);
  cut(no_seed, chunk("a", told("8")));
  EXPECT_FALSE(no_seed.resumable());
  cut(no_id, "data: {\"choices\":[{}],\"troupe\":{\"ids\":[1],\"seed\":1}}\n\n");
  EXPECT_FALSE(no_id.resumable());
}

TEST(ResumeTap, TooLongAnAnswerIsNotKept) {
  ResumeTap tap(true);
  cut(tap, chunk("a", told("8", "1")));
  std::string ids = "7";
  for (int i = 0; i < 1023; ++i) ids += ",7";
  for (size_t i = 0; i + 1024 < ResumeTap::kIdsMax; i += 1024) cut(tap, chunk("a", told(ids)));
  EXPECT_TRUE(tap.resumable());
  cut(tap, chunk("a", told(ids)));
  EXPECT_FALSE(tap.resumable());
  EXPECT_EQ(cut(tap, chunk("z", told(ids))), chunk("z", ""));
  EXPECT_EQ(tap.ids_delivered(), 0u);
  EXPECT_EQ(tap.tokens_delivered(), 1 + ResumeTap::kIdsMax + 1024) << "but counted";
}

TEST(ResumeTap, NextWorkerContinuesTheStream) {
  ResumeTap tap(true);
  cut(tap, chunk("a", told("8", "1")));
  tap.next_worker(true);
  EXPECT_FALSE(tap.heartbeats());
  EXPECT_EQ(cut(tap, ": hb\n\n" + chunk("b", told("9", "1")) + chunk("c", told("10"))),
            chunk("b", "") + chunk("c", ""));
  EXPECT_FALSE(tap.diverged());
  EXPECT_TRUE(tap.resumable());
  EXPECT_EQ(tap.ids_delivered(), 3u);
  EXPECT_EQ(tap.tokens_delivered(), 3u);
}

TEST(ResumeTap, WorkerThatBeginsAnewHasStrayed) {
  for (const std::string& first : {chunk("a", ""), chunk("a", told("8", "1"), "null", "chatcmpl-2"),
                                   std::string(kUsage), std::string("data: [DONE]\n\n")}) {
    ResumeTap tap(true);
    cut(tap, chunk("a", told("8", "1")));
    tap.next_worker(true);
    EXPECT_EQ(cut(tap, first + chunk("b", told("9"))), "");
    EXPECT_TRUE(tap.diverged()) << first;
    EXPECT_TRUE(tap.resumable()) << "by yet another";
    EXPECT_EQ(tap.ids_delivered(), 1u);
    EXPECT_EQ(tap.tokens_delivered(), 1u);
    EXPECT_FALSE(tap.done());
  }
}

TEST(ResumeTap, FinishReasonIsPassedOnOnce) {
  ResumeTap tap(true);
  cut(tap, chunk("a", told("8", "1")));
  cut(tap, chunk("", told("2"), "\"length\""));
  tap.next_worker(true);
  const std::string rest = std::string(kUsage) + "data: [DONE]\n\n";
  EXPECT_EQ(cut(tap, chunk("", told("", "1"), "\"length\"") + rest), rest);
  EXPECT_FALSE(tap.diverged());
  EXPECT_TRUE(tap.done());
}

TEST(ResumeTap, ErrorsPassAndHaveTheirStatus) {
  ResumeTap tap(true);
  cut(tap, chunk("a", told("8", "1")));
  for (const ApiError& error :
       {ApiError::bad_field("n", "m"), ApiError::not_found_model("m"), ApiError::too_large("m"),
        ApiError::context_length("prompt", 9, 8), ApiError::overloaded("m", 3), ApiError::unavailable("m"),
        ApiError::deadline("m"), ApiError::internal("m")}) {
    const std::string event = "data: " + error.to_json() + "\n\n";
    EXPECT_EQ(cut(tap, event), event);
    EXPECT_EQ(status_of_error_event(event), error.http_status) << event;
  }
  EXPECT_TRUE(tap.resumable());
  for (const char* foreign : {"data: {\"error\":{\"message\":\"m\",\"type\":\"BadRequest\"}}\n\n",
                              "data: {\"error\":1}\n\n", "x", ""})
    EXPECT_EQ(status_of_error_event(foreign), 0);
}

}  // namespace resume_tap_test
}  // namespace troupe
