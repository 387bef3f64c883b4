// A hostile answer shares the text-out thread with all others: its stop strings must not make them wait.

#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include "common/core/metrics.h"
#include "tests/cpu_time.h"
#include "worker/engine/output_pipeline.h"

namespace troupe::neighbours_test {

constexpr int kTokens = 1200;
constexpr size_t kWidth = 64;  // bytes of a token, as Llama 3 has for dashes

std::unique_ptr<Tokenizer> tokenizer_of_dashes() {
  const std::string json =
      R"({"decoder":{"type":"Fuse"},"model":{"type":"BPE","merges":[],"vocab":{"h":0,"-":1,")" +
      std::string(kWidth, '-') + R"(":2}}})";
  return Tokenizer::from_json(json, "made.json").value();
}

// Processor time of the text-out thread while an answer of dashes with these stop strings goes out beside
// another, token by token; -1 where the other did not come whole.
double seconds_beside(const std::vector<std::string>& stops) {
  const auto tokenizer = tokenizer_of_dashes();
  Metrics metrics;
  EngineMetrics engine_metrics(metrics, "m");
  OutputPipeline pipeline(
      {.tokenizer = tokenizer.get(), .metrics = &engine_metrics, .on_stop_string = [](RequestId) {}});
  std::string neighbours;
  for (const RequestId id : {RequestId{1}, RequestId{2}}) {
    NewStream stream;
    stream.id = id;
    stream.prompt_count = 1;
    if (id == 1) stream.stop_strings = stops;
    stream.sink = [id, &neighbours](EngineOutput piece) {
      if (id == 2) neighbours += piece.text;
    };
    pipeline.open(std::move(stream));
  }
  std::vector<TokenEvent> events;
  for (int i = 0; i < kTokens; ++i) {
    for (const RequestId id : {RequestId{1}, RequestId{2}}) {
      TokenEvent event;
      event.id = id;
      event.token = id == 1 ? 2 : 0;
      if (i + 1 == kTokens) event.finish = FinishReason::kLength;
      events.push_back(std::move(event));
    }
  }
  pipeline.push(events);
  const double begin = cpu_seconds();
  pipeline.stop(absl::CancelledError("the test ends"));  // never started: everything goes out here
  const double took = cpu_seconds() - begin;
  return neighbours.size() == kTokens ? took : -1;
}

TEST(Neighbours, OfAnAnswerWithNearlyMatchingStopStringsDoNotWait) {
  const std::string piece(kWidth, '-');
  std::string nearly;
  for (int i = 0; i < kTokens / 2; ++i) nearly += piece;
  std::vector<std::string> stops = {nearly + nearly + piece};
  for (int i = 0; i < 15; ++i) stops.push_back(nearly + "X" + std::to_string(i));
  const double took = seconds_beside(stops);
  EXPECT_GE(took, 0) << "the neighbour's answer is not whole";
  EXPECT_LT(took, 2) << "where every token searches the text held back, it takes a minute";
}

}  // namespace troupe::neighbours_test
