// A hostile text shares a thread with others of its length: what it costs is what they wait.

#include <gtest/gtest.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <string>
#include <thread>

#include "tests/cpu_time.h"
#include "tests/worker/input/chat_server.h"
#include "tests/worker/spawn.h"
#include "worker/http/text_jobs.h"

namespace troupe::hostile_neighbours_test {

using chat_server::ChatServer;

// A tokenizer that normalizes as Qwen's do.
std::unique_ptr<Tokenizer> normalizing() {
  return Tokenizer::from_json(
             R"({"normalizer":{"type":"NFC"},"model":{"type":"BPE","unk_token":"?","merges":[],"vocab":{"?":0,"h":1}}})",
             "made.json")
      .value();
}

// Each mark of the second kind has to pass all of the first.
std::string combining_marks(size_t bytes) {
  std::string text = "a";
  while (text.size() < bytes / 2) text += "\u0301";
  while (text.size() < bytes) text += "\u0323";
  return text;
}

// Processor time of the text's encoding; -1 where it was refused.
Task<double> seconds_of(TextJobs& jobs, const ChatServer& server, std::string text) {
  auto job = [&server, text]() -> ApiResult<double> {
    const double begin = cpu_seconds();
    GenerateRequest request;
    request.messages = {{Role::kUser, text, ""}};
    auto ids = encode_chat(server.model, request);
    if (!ids.ok()) return ids.error();
    return cpu_seconds() - begin;
  };
  const size_t bytes = text.size();
  const auto seconds = co_await jobs.run<double>(bytes, Deadline::never(), std::move(job));
  co_return seconds.ok() ? seconds.value() : -1;
}

TEST(HostileNeighbours, OfCombiningMarksWaitAMomentOnly) {
  ChatServer server(normalizing(), "{% for m in messages %}{{ m.content }}{% endfor %}");
  server.model.total_count_max = 1 << 20;
  server.model.prompt_bytes_max = 1 << 24;
  TextJobs jobs(std::chrono::minutes(5));
  asio::io_context io{1};
  auto work = asio::make_work_guard(io);
  std::thread thread([&] { io.run(); });
  for (const size_t bytes : {TextJobs::kLongBytes - 1000, size_t{200} << 10}) {
    auto hostile = test_spawn::spawn(io.get_executor(), seconds_of(jobs, server, combining_marks(bytes)));
    auto neighbour = test_spawn::spawn(io.get_executor(), seconds_of(jobs, server, std::string(bytes, 'h')));
    const double waited = hostile.get();
    EXPECT_GE(waited, 0);
    EXPECT_GE(neighbour.get(), 0);
    EXPECT_LT(waited, 2) << bytes << ": in quadratic time it takes half a minute";
  }
  work.reset();
  thread.join();
}

}  // namespace troupe::hostile_neighbours_test
