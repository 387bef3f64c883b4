// A stream that breaks off and is resumed by another worker: wherever it is cut, the remaining chunks are
// those of the uncut stream.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/api/sse.h"
#include "common/json/json.h"
#include "tests/worker/harness_server.h"
#include "tests/worker/step_gate.h"

namespace troupe::resume_test {

using testing::Collector;
using testing::EngineHarness;
using testing::HarnessServer;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ids_json(const std::vector<TokenId>& ids) {
  std::string json = "[";
  for (const TokenId id : ids) absl::StrAppend(&json, json.size() > 1 ? "," : "", id);
  return json + "]";
}

// A stream as its client receives it.
struct Stream {
  // All chunks but the usage's, without cached counts: the other worker may have more cached.
  std::vector<bj::value> chunks;
  bj::object usage;
  bool is_whole = false;

  uint64_t seed() const { return chunks.at(0).at_pointer("/troupe/seed").to_number<uint64_t>(); }
  // The ids in the first `count` chunks.
  std::vector<TokenId> ids(size_t count) const {
    std::vector<TokenId> ids;
    for (size_t i = 0; i < count; ++i) {
      for (const auto& id : chunks[i].at_pointer("/troupe/ids").as_array()) {
        ids.push_back(id.to_number<TokenId>());
      }
    }
    return ids;
  }
  std::string text() const {
    std::string text;
    for (const auto& chunk : chunks) text += chunk.at_pointer("/choices/0/text").as_string();
    return text;
  }
  size_t chunks_of_several_ids() const {
    size_t count = 0;
    for (const auto& chunk : chunks) count += chunk.at_pointer("/troupe/ids").as_array().size() > 1;
    return count;
  }
  // Ignores cached tokens, which may differ on the other worker.
  bj::object counts() const {
    bj::object counts = usage;
    counts.erase("prompt_tokens_details");
    return counts;
  }
};

Stream stream_of(const raw_http::Reply& reply) {
  Stream stream;
  EXPECT_EQ(reply.status, 200) << reply.body;
  SseParser parser;
  const auto status = parser.feed(reply.body, [&stream](const SseEvent& event) {
    stream.is_whole = event.data == "[DONE]";
    if (stream.is_whole) return;
    bj::value chunk = parse_json(event.data).value();
    if (chunk.at("choices").as_array().empty()) {
      stream.usage = chunk.at("usage").as_object();
    } else {
      chunk.at("troupe").as_object().erase("cached_tokens");
      stream.chunks.push_back(std::move(chunk));
    }
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(stream.is_whole) << reply.body;
  return stream;
}

class Resume : public ::testing::Test {
 protected:
  static constexpr int kMaxTokens = 40;

  static std::string body(const std::string& fields) {
    return HarnessServer::body(kMaxTokens, true, R"(,"stream_options":{"include_usage":true})" + fields);
  }
  // The body that resumes `uncut` after `count` chunks.
  static std::string resumed_body(const std::string& fields, const Stream& uncut, size_t count) {
    const std::string resume =
        absl::StrCat(R"(,"troupe_resume":{"ids":)", ids_json(uncut.ids(count)), R"(,"seed":)", uncut.seed(),
                     R"(,"id":")", std::string(uncut.chunks[0].at("id").as_string()), R"(","created":)",
                     uncut.chunks[0].at("created").as_int64(), "}");
    return body(fields + resume);
  }
  static Stream stream(const HarnessServer& server, const std::string& body) {
    return stream_of(server.complete(body, {"x-troupe-ids: 1"}));
  }

  // Compares the stream with its resumption after each chunk; returns the uncut stream.
  Stream expect_the_same_wherever_it_is_cut(const std::string& fields) {
    const Stream uncut = stream(first_, body(fields));
    for (size_t count = 1; count < uncut.chunks.size(); ++count) {
      Stream rest = stream(second_, resumed_body(fields, uncut, count));
      rest.chunks.at(0).at("troupe").as_object().erase("seed");
      const std::vector<bj::value> expected(uncut.chunks.begin() + static_cast<ptrdiff_t>(count),
                                            uncut.chunks.end());
      EXPECT_EQ(rest.chunks, expected) << fields << " cut behind " << count << " chunks";
      EXPECT_EQ(rest.counts(), uncut.counts()) << fields << " cut behind " << count << " chunks";
      if (HasFailure()) break;
    }
    return uncut;
  }

  const HarnessServer first_, second_;
};

TEST_F(Resume, ContinuesGreedyStream) {
  const Stream uncut = expect_the_same_wherever_it_is_cut(R"(,"temperature":0)");
  EXPECT_GT(uncut.chunks_of_several_ids(), 0u) << "no character is of several tokens";
}

TEST_F(Resume, ContinuesSampledStream) {
  expect_the_same_wherever_it_is_cut(R"(,"temperature":1,"seed":-3)");
  expect_the_same_wherever_it_is_cut(R"(,"temperature":1,"top_p":0.8,"min_p":0.01)");
}

TEST_F(Resume, PenaltiesCountSentTokens) {
  expect_the_same_wherever_it_is_cut(
      R"(,"temperature":0.5,"repetition_penalty":1.5,"presence_penalty":1,"frequency_penalty":0.7,"seed":5)");
}

TEST_F(Resume, StopTokenEndsTheResumedStream) {
  const auto ids = stream(first_, body(R"(,"temperature":0)")).ids(20);
  const Stream uncut = expect_the_same_wherever_it_is_cut(
      absl::StrCat(R"(,"temperature":0,"stop_token_ids":[)", ids.back(), "]"));
  EXPECT_EQ(uncut.chunks.back().at_pointer("/choices/0/finish_reason"), "stop");
  EXPECT_EQ(uncut.chunks.back().at_pointer("/choices/0/stop_reason"), ids.back());
}

// Stop strings that hold text back in vain, and one that ends the answer.
TEST_F(Resume, SendsTextHeldBackByStopStrings) {
  const std::string fields = R"(,"temperature":1,"seed":11)";
  const Stream plain = stream(first_, body(fields));
  std::vector<std::string> pieces;
  for (const auto& chunk : plain.chunks) {
    pieces.emplace_back(chunk.at_pointer("/choices/0/text").as_string());
  }
  ASSERT_GT(pieces.size(), 20u);
  bj::array stops{pieces[14] + pieces[15] + pieces[16]};
  for (size_t i = 0; i < 14; i += 3) stops.emplace_back(pieces[i] + pieces[i + 1] + "\x01");
  const Stream uncut = expect_the_same_wherever_it_is_cut(fields + R"(,"stop":)" + to_json(stops));
  EXPECT_EQ(uncut.chunks.back().at_pointer("/choices/0/finish_reason"), "stop");
  EXPECT_LT(uncut.chunks.size(), 14u) << "nothing was held back";
}

TEST_F(Resume, SendsLogprobsOfHeldBackText) {
  expect_the_same_wherever_it_is_cut(R"(,"temperature":0,"logprobs":2)");
  const std::string fields = R"(,"temperature":1,"seed":11,"logprobs":0,"frequency_penalty":0.5)";
  const Stream plain = stream(first_, body(fields));
  const std::string piece(plain.chunks[5].at_pointer("/choices/0/text").as_string());
  expect_the_same_wherever_it_is_cut(fields + R"(,"stop":)" + to_json(bj::array{piece + "\x01"}));
}

TEST_F(Resume, DoesNotEchoThePromptAgain) {
  const Stream uncut = expect_the_same_wherever_it_is_cut(R"(,"temperature":0,"echo":true,"logprobs":1)");
  EXPECT_TRUE(uncut.text().starts_with("Once"));
}

TEST_F(Resume, EndedStreamOnlyEnds) {
  for (const std::string fields : {R"(,"temperature":0)", R"(,"temperature":0,"logprobs":1)"}) {
    const Stream uncut = stream(first_, body(fields));
    const Stream rest = stream(second_, resumed_body(fields, uncut, uncut.chunks.size()));
    ASSERT_EQ(rest.chunks.size(), 1u);
    EXPECT_EQ(rest.text(), "");
    EXPECT_EQ(rest.chunks[0].at_pointer("/choices/0/finish_reason"), "length");
    EXPECT_EQ(rest.counts(), uncut.counts());
  }
  const Stream whole = stream(first_, body(R"(,"temperature":0)"));
  const bj::array stops{whole.chunks.at(10).at_pointer("/choices/0/text")};
  const std::string fields = R"(,"temperature":0,"stop":)" + to_json(stops);
  const Stream stopped = stream(first_, body(fields));
  const Stream rest = stream(second_, resumed_body(fields, stopped, stopped.chunks.size()));
  ASSERT_EQ(rest.chunks.size(), 1u);
  EXPECT_EQ(rest.chunks[0].at_pointer("/choices/0/finish_reason"), "stop");
  EXPECT_EQ(rest.chunks[0].at_pointer("/choices/0/stop_reason"), stops[0]);
  EXPECT_EQ(stopped.chunks.back().at_pointer("/choices/0/stop_reason"), stops[0]);
  EXPECT_EQ(rest.counts(), stopped.counts());
}

TEST_F(Resume, NoIdsYieldTheWholeStream) {
  const std::string fields = R"(,"temperature":1,"echo":true)";
  const Stream uncut = stream(first_, body(fields));
  const Stream again = stream(second_, resumed_body(fields, uncut, 0));
  EXPECT_EQ(again.chunks, uncut.chunks);
}

TEST_F(Resume, RefusesInvalidIdsByName) {
  const auto refusal = [this](const std::string& body) {
    const auto reply = second_.complete(body);
    EXPECT_EQ(reply.status, 400) << reply.body;
    const auto error = parse_json(reply.body).value();
    return std::string(error.at_pointer("/error/param").as_string()) + ": " +
           std::string(error.at_pointer("/error/message").as_string());
  };
  const auto with = [](const std::string& resume) { return body(R"(,"troupe_resume":)" + resume); };
  EXPECT_THAT(refusal(with(R"({"ids":[50,4096],"seed":1})")), HasSubstr("troupe_resume.ids[1]: "));
  EXPECT_THAT(refusal(with(R"({"ids":[-1],"seed":1})")), HasSubstr("troupe_resume.ids[0]: "));
  const std::vector<TokenId> many(kMaxTokens + 1, 50);
  EXPECT_THAT(refusal(with(absl::StrCat(R"({"ids":)", ids_json(many), R"(,"seed":1})"))),
              HasSubstr("troupe_resume.ids: holds 41 ids, more than the 40"));
  EXPECT_THAT(refusal(body(R"(,"stop_token_ids":[60],"troupe_resume":{"ids":[50,60,70],"seed":1})")),
              HasSubstr("troupe_resume.ids[2]: "));
  EXPECT_THAT(refusal(HarnessServer::body(5, false, R"(,"troupe_resume":{"ids":[50],"seed":1})")),
              HasSubstr("stream: "));
  EXPECT_THAT(refusal(body(R"(,"n":2,"troupe_resume":{"ids":[50],"seed":1})")), HasSubstr("n: "));
  EXPECT_THAT(refusal(body(R"(,"seed":2,"troupe_resume":{"ids":[50],"seed":1})")),
              HasSubstr("troupe_resume.seed: "));
}

// With a memory too small for all of them: some are preempted and computed again.
TEST(ResumeEngine, ContinuesUnchangedAmongManyRequests) {
  SchedulerConfig config = EngineHarness::default_config();
  config.block_count = 60;
  config.max_num_batched_tokens = 24;
  testing::StepGate gate;
  EngineHarness h(config, {.before_step = gate.hook()});
  std::vector<EngineRequest> requests;
  std::deque<Collector> outs;
  for (int i = 0; i < 50; ++i) {
    EngineRequest& r = requests.emplace_back(
        h.request(h.prompt(i % 4, 20 + (i % 4) * 10), 12 + i % 17, static_cast<uint64_t>(i % 5)));
    if (i % 3 == 0) r.sampling.frequency_penalty = 1;
    r.emitted = h.model.reference(r.prompt, r.sampling, r.max_new_count);
    r.emitted.resize(static_cast<size_t>(i % 12));
    ASSERT_TRUE(h.engine->submit(r, outs.emplace_back().sink()).ok());
  }
  gate.open();  // all have arrived
  for (size_t i = 0; i < requests.size(); ++i) {
    const EngineRequest& r = requests[i];
    ASSERT_TRUE(outs[i].wait_end()) << i;
    auto ids = r.emitted;
    const auto rest = outs[i].ids();
    ids.insert(ids.end(), rest.begin(), rest.end());
    EXPECT_EQ(ids, h.model.reference(r.prompt, r.sampling, r.max_new_count)) << i;
    EXPECT_EQ(outs[i].last().usage.completion_tokens, r.max_new_count);
    EXPECT_EQ(outs[i].last().usage.prompt_tokens, static_cast<int64_t>(r.prompt.size()));
    EXPECT_LE(outs[i].last().usage.cached_tokens, static_cast<int64_t>(r.prompt.size()));
  }
  EXPECT_THAT(h.metrics.text(),
              Not(HasSubstr("vllm:num_preemptions_total{engine=\"0\",model_name=\"fake\"} 0\n")));
  EXPECT_TRUE(h.wait_idle());
}

}  // namespace troupe::resume_test
