#pragma once

// Third stage: tokens → text → the request's sink, on a thread of its own, so that detokenising a wide batch
// never delays a step. It owns the streams and finds stop strings, which only the text shows.

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/api/api.h"
#include "common/core/mutex.h"
#include "common/core/time.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_metrics.h"
#include "worker/engine/token_event.h"
#include "worker/model/log_softmax.h"
#include "worker/text/tokenizer/detokenizer.h"

namespace troupe {

struct NewStream {
  RequestId id = 0;
  int64_t prompt_count = 0;
  std::vector<std::string> stop_strings;
  bool wants_logprobs = false;
  bool continues_text = false;                                // see EngineRequest
  std::shared_ptr<const std::vector<TokenId>> shown_special;  // likewise
  std::vector<TokenId> emitted;
  int32_t repeated_count = 0;  // this many tokens arrive once more, and are not sent
  EngineSink sink;
  TimePoint submitted{};
};

// The reason that a request's stop token is: a special one may be there as a stop string.
StopReason stop_of_token(const Tokenizer& tokenizer, const std::vector<std::string>& stop_strings,
                         TokenId token);

class OutputPipeline {
 public:
  struct Options {
    const Tokenizer* tokenizer = nullptr;  // outlives this
    EngineMetrics* metrics = nullptr;      // outlives this
    size_t pending_tokens_max = 4096;      // beyond it the compute thread waits in push()
    // Called when a stop string ended `id`, to stop computing it. Text-out thread, no lock held.
    std::function<void(RequestId)> on_stop_string;
  };
  explicit OutputPipeline(Options options);
  ~OutputPipeline();

  void start();
  // Delivers the pushed events, then ends every open stream with `error` and joins the thread.
  void stop(Status error);

  // Thread-safe. REQUIRES: a stream is opened before its first token is pushed.
  void open(NewStream stream);
  // Stops delivery (a piece being delivered right now still arrives). Returns false if the stream had ended.
  bool cancel(RequestId id);
  // Takes the events (leaves `events` empty, its memory reusable). Blocks while too many are pending.
  void push(std::vector<TokenEvent>& events);
  void fail(const std::vector<RequestId>& ids, const Status& error);
  // Streams whose sink may still be called.
  size_t open_count() const;
  const Tokenizer* tokenizer() const { return options_.tokenizer; }

 private:
  struct Stream {
    Stream(NewStream opened, const Tokenizer* tokenizer);
    NewStream request;
    int32_t repeats_left;  // of repeated_count
    Detokenizer detokenizer;
    std::vector<TokenId> ids;  // since the last piece
    std::vector<TokenLogprob> prompt_logprobs;
    std::vector<TokenLogprob> logprobs;  // tokens whose text is not complete yet
    Usage usage;
    TimePoint last_token_at{};
  };
  // Work that the other threads left since this thread last looked.
  struct Inbox {
    std::vector<NewStream> opened;
    std::vector<TokenEvent> tokens;
    std::vector<std::pair<RequestId, Status>> failures;
    std::vector<RequestId> cancelled;
    bool empty() const;
    void clear();
  };

  void loop();
  void process(Inbox& inbox);
  void process_token(TokenEvent& event);
  TokenLogprob logprob_of(const TokenScore& score) const;
  void take_scores(Stream& stream, const TokenEvent& event) const;
  StopReason stop_reason(const Stream& stream, const TokenEvent& event) const;
  // Returns false if the token was already sent.
  bool count_token(Stream& stream, const TokenEvent& event);
  bool is_open(RequestId id) const;
  void deliver(Stream& stream, EngineOutput output, bool last);
  void fail_stream(RequestId id, const Status& error);

  const Options options_;
  mutable Mutex mutex_;  // never held while a sink or callback runs
  CondVar changed_;
  CondVar drained_;  // the pending tokens were taken
  Inbox inbox_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<RequestId> open_ ABSL_GUARDED_BY(mutex_);  // streams that may still get a piece
  // Cancelled streams that the text-out thread has not removed yet.
  size_t closing_count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Status stop_error_ ABSL_GUARDED_BY(mutex_);

  absl::flat_hash_map<RequestId, std::unique_ptr<Stream>> streams_;  // text-out thread only
  std::thread thread_;
};

}  // namespace troupe
