#include "worker/engine/output_pipeline.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {

OutputPipeline::Stream::Stream(NewStream opened, const Tokenizer* tokenizer)
    : request(std::move(opened)),
      repeats_left(request.repeated_count),
      detokenizer(tokenizer, request.stop_strings,
                  {.at_start = !request.continues_text,
                   .keeps_offsets = request.wants_logprobs,
                   .shown_special = request.shown_special}) {
  usage.prompt_tokens = request.prompt_count;
  usage.completion_tokens = static_cast<int64_t>(request.emitted.size());
  // The emitted tokens yield exactly the text that was already sent, so new text follows it.
  for (const TokenId id : request.emitted) detokenizer.push(id);
  detokenizer.take_offsets();
}

bool OutputPipeline::Inbox::empty() const {
  return opened.empty() && tokens.empty() && failures.empty() && cancelled.empty();
}

void OutputPipeline::Inbox::clear() {
  opened.clear();
  tokens.clear();
  failures.clear();
  cancelled.clear();
}

OutputPipeline::OutputPipeline(Options options) : options_(std::move(options)) {}

OutputPipeline::~OutputPipeline() {
  stop(absl::CancelledError("the engine is gone"));
}

void OutputPipeline::start() {
  thread_ = std::thread([this] { loop(); });
}

void OutputPipeline::stop(Status error) {
  {
    const MutexLock lock(mutex_);
    if (!stopping_) stop_error_ = std::move(error);
    stopping_ = true;
  }
  changed_.notify_one();
  drained_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    loop();  // never started: open streams get their last piece here
  }
}

void OutputPipeline::open(NewStream stream) {
  const MutexLock lock(mutex_);
  open_.insert(stream.id);
  inbox_.opened.push_back(std::move(stream));
  // No wake-up: a new stream needs nothing before its first token.
}

bool OutputPipeline::cancel(RequestId id) {
  {
    const MutexLock lock(mutex_);
    if (open_.erase(id) == 0) return false;
    inbox_.cancelled.push_back(id);
    ++closing_count_;
  }
  changed_.notify_one();
  return true;
}

void OutputPipeline::push(std::vector<TokenEvent>& events) {
  {
    const MutexLock lock(mutex_);
    while (inbox_.tokens.size() >= options_.pending_tokens_max && !stopping_) drained_.wait(mutex_);
    inbox_.tokens.insert(inbox_.tokens.end(), std::make_move_iterator(events.begin()),
                         std::make_move_iterator(events.end()));
  }
  events.clear();
  changed_.notify_one();
}

void OutputPipeline::fail(const std::vector<RequestId>& ids, const Status& error) {
  {
    const MutexLock lock(mutex_);
    for (RequestId id : ids) inbox_.failures.emplace_back(id, error);
  }
  changed_.notify_one();
}

size_t OutputPipeline::open_count() const {
  const MutexLock lock(mutex_);
  return open_.size() + closing_count_;
}

void OutputPipeline::loop() {
  Inbox inbox;  // swapped with inbox_, so both keep their memory
  bool stopping = false;
  Status error;
  while (!stopping) {
    {
      const MutexLock lock(mutex_);
      while (inbox_.empty() && !stopping_) changed_.wait(mutex_);
      std::swap(inbox, inbox_);
      stopping = stopping_;
      if (stopping) error = stop_error_;
    }
    drained_.notify_all();
    process(inbox);
    {
      const MutexLock lock(mutex_);
      closing_count_ -= inbox.cancelled.size();
    }
    inbox.clear();
  }
  while (!streams_.empty()) fail_stream(streams_.begin()->first, error);
}

// The order matters: a stream's tokens come after its opening and before its failure.
void OutputPipeline::process(Inbox& inbox) {
  for (NewStream& opened : inbox.opened) {
    const RequestId id = opened.id;
    streams_.emplace(id, std::make_unique<Stream>(std::move(opened), options_.tokenizer));
  }
  for (TokenEvent& event : inbox.tokens) process_token(event);
  for (const auto& [id, error] : inbox.failures) fail_stream(id, error);
  for (RequestId id : inbox.cancelled) {
    if (streams_.erase(id) > 0) options_.metrics->aborted();
  }
}

StopReason stop_of_token(const Tokenizer& tokenizer, const std::vector<std::string>& stop_strings,
                         TokenId token) {
  const std::string text(tokenizer.token_bytes(token, /*skip_special=*/false));
  const bool is_string = tokenizer.is_special(token) &&
                         std::find(stop_strings.begin(), stop_strings.end(), text) != stop_strings.end();
  if (is_string) return text;
  return token;
}

namespace {

// Takes the log-probabilities whose text is complete; the others keep waiting.
std::vector<TokenLogprob> take_complete(std::vector<TokenLogprob>& waiting,
                                        const std::vector<int64_t>& offsets) {
  const auto end = waiting.begin() + static_cast<ptrdiff_t>(offsets.size());
  std::vector<TokenLogprob> complete(std::make_move_iterator(waiting.begin()), std::make_move_iterator(end));
  waiting.erase(waiting.begin(), end);
  for (size_t i = 0; i < complete.size(); ++i) complete[i].text_offset = offsets[i];
  return complete;
}

}  // namespace

void OutputPipeline::process_token(TokenEvent& event) {
  const auto it = streams_.find(event.id);
  if (it == streams_.end()) return;  // computed before its stop string or cancellation was known
  Stream& stream = *it->second;
  const bool is_new = count_token(stream, event);
  take_scores(stream, event);

  EngineOutput output;
  output.finish = event.finish;
  if (is_new && event.finish != FinishReason::kStop && event.token != kNoToken)
    output.text = stream.detokenizer.push(event.token);
  if (!stream.detokenizer.stopped() && event.finish != FinishReason::kNone)
    output.text += stream.detokenizer.finish();  // The held-back rest may complete a stop string.
  if (stream.detokenizer.stopped()) output.finish = FinishReason::kStop;
  if (output.finish == FinishReason::kStop) output.stop = stop_reason(stream, event);
  const bool last = output.finish != FinishReason::kNone;
  const bool first = is_new && stream.usage.completion_tokens == 1;
  if (!last && !first && output.text.empty()) return;  // half a character, or the start of a stop string
  output.ids = std::exchange(stream.ids, {});
  output.prompt_logprobs = std::exchange(stream.prompt_logprobs, {});
  output.logprobs = take_complete(stream.logprobs, stream.detokenizer.take_offsets());
  output.usage = stream.usage;
  output.pooled = std::move(event.pooled);
  if (!is_open(event.id)) return;  // cancelled meanwhile
  // Metrics come first: a client that has the last piece finds its request counted.
  if (last) options_.metrics->finished(output.finish, event.at - stream.request.submitted);
  deliver(stream, std::move(output), last);
  if (!last) return;
  streams_.erase(it);
  if (event.finish == FinishReason::kNone) options_.on_stop_string(event.id);
}

StopReason OutputPipeline::stop_reason(const Stream& stream, const TokenEvent& event) const {
  if (stream.detokenizer.stopped()) return stream.detokenizer.stop_string();
  if (!event.is_stop_token) return {};
  return stop_of_token(*options_.tokenizer, stream.request.stop_strings, event.token);
}

bool OutputPipeline::count_token(Stream& stream, const TokenEvent& event) {
  stream.usage.cached_tokens = std::min<int64_t>(event.cached_count, stream.request.prompt_count);
  if (stream.last_token_at == TimePoint{}) {
    options_.metrics->first_token(event.at - stream.request.submitted, stream.request.prompt_count);
  } else if (event.token != kNoToken) {
    options_.metrics->next_token(event.at - stream.last_token_at);
  }
  stream.last_token_at = event.at;
  if (event.token == kNoToken) return true;
  if (stream.repeats_left > 0) {
    --stream.repeats_left;
    return false;
  }
  stream.ids.push_back(event.token);
  ++stream.usage.completion_tokens;
  options_.metrics->token();
  return true;
}

TokenLogprob OutputPipeline::logprob_of(const TokenScore& score) const {
  const auto bytes_of = [this](TokenId id) {
    return std::string(options_.tokenizer->token_bytes(id, /*skip_special=*/false));
  };
  TokenLogprob result;
  result.bytes = bytes_of(score.token);
  result.logprob = score.logprob;
  result.top.reserve(score.top.size());
  for (const RankedToken& other : score.top) result.top.push_back({bytes_of(other.id), other.logprob});
  return result;
}

// Stores the scores of an event. A token that ended the answer is not part of it and has none.
void OutputPipeline::take_scores(Stream& stream, const TokenEvent& event) const {
  if (event.prompt_scores != nullptr) {
    for (const TokenScore& score : *event.prompt_scores) {
      stream.prompt_logprobs.push_back(logprob_of(score));
    }
    stream.prompt_logprobs.front().logprob.reset();  // nothing comes before it
  }
  if (event.score != nullptr && event.finish != FinishReason::kStop) {
    stream.logprobs.push_back(logprob_of(*event.score));
  }
}

bool OutputPipeline::is_open(RequestId id) const {
  const MutexLock lock(mutex_);
  return open_.contains(id);
}

// Sends a piece. A stream counts as open until its last piece was delivered.
void OutputPipeline::deliver(Stream& stream, EngineOutput output, bool last) {
  stream.request.sink(std::move(output));
  if (!last) return;
  const MutexLock lock(mutex_);
  open_.erase(stream.request.id);
}

void OutputPipeline::fail_stream(RequestId id, const Status& error) {
  const auto it = streams_.find(id);
  if (it == streams_.end()) return;
  EngineOutput output;
  output.error = error;
  output.usage = it->second->usage;
  if (is_open(id)) deliver(*it->second, std::move(output), /*last=*/true);
  streams_.erase(it);
}

}  // namespace troupe
