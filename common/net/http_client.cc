// One exchange: take or open a connection, write, read the head, hand the body to the caller piece by piece.
// A Lease holds the connection and closes it unless the exchange came to its end: so an exception, a
// cancellation and a dropped answer all stop the upstream the same way.

#include "common/net/http_client.h"

#include <boost/system/system_error.hpp>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "common/net/chunk_decoder.h"
#include "common/net/client_pool.h"
#include "common/net/http_write.h"
#include "common/net/silence_timeout.h"

namespace troupe {
namespace {

using absl::StatusCode;

constexpr int kInterimHeadsMax = 16;

class Lease {
 public:
  Lease() = default;
  Lease(std::shared_ptr<ClientPool> pool, std::shared_ptr<Channel> channel)
      : pool_(std::move(pool)), channel_(std::move(channel)) {}
  Lease(Lease&&) = default;
  Lease& operator=(Lease&&) = delete;
  ~Lease() { close(); }

  void close() {
    if (channel_) channel_->close();
    channel_.reset();
  }
  void give_back() {
    if (channel_) pool_->give_back(std::move(channel_));
    channel_.reset();
  }
  explicit operator bool() const { return channel_ != nullptr; }
  Channel* operator->() const { return channel_.get(); }
  const ClientPool& pool() const { return *pool_; }
  const std::shared_ptr<Channel>& channel() const { return channel_; }

 private:
  std::shared_ptr<ClientPool> pool_;
  std::shared_ptr<Channel> channel_;
};

struct Cause {
  StatusCode code;
  std::string_view what;
};
Cause cause_of(SilenceTimeout::Verdict verdict) {
  if (verdict == SilenceTimeout::Verdict::kGivenUp) return {StatusCode::kAborted, "the peer fell silent"};
  return {StatusCode::kDeadlineExceeded, "the deadline passed"};
}

// In TLS 1.3 a server refuses the client's certificate only after the client's handshake is done.
std::string tls_failure(const Channel& channel) {
  const bool failed = channel.tls() != nullptr && !channel.tls()->failure().empty();
  return failed ? ": TLS: " + channel.tls()->failure() : "";
}

// Closes the connection when an exception (its cancellation) leaves a coroutine.
struct CloseUnlessDone {
  Lease& lease;
  bool done = false;
  ~CloseUnlessDone() {
    if (!done) lease.close();
  }
};

class Answer final : public ClientAnswer {
 public:
  Answer(Lease lease, AnswerHead head, SilenceTimeout silence_timeout, bool reusable)
      : lease_(std::move(lease)),
        head_(std::move(head)),
        silence_timeout_(std::move(silence_timeout)),
        left_(head_.content_length),
        reusable_(reusable) {
    if (head_.framing == BodyFraming::kNone) end();
  }

  int status() const override { return head_.status; }
  const HeaderList& headers() const override { return head_.headers; }
  std::string_view header(std::string_view name) const override { return find_header(head_.headers, name); }

  Task<StatusOr<bool>> read(std::string& out) override;
  void end_within(Duration wait) override { end_by_ = std::chrono::steady_clock::now() + wait; }
  Task<StatusOr<std::string>> read_all(size_t bytes_max) override;

 private:
  bool take(std::string& out);
  void end() {
    ended_ = true;
    if (reusable_ && head_.keep_alive) {
      lease_.give_back();
    } else {
      lease_.close();
    }
  }
  Status fail(StatusCode code, std::string_view what) {
    lease_.close();
    error_ = lease_.pool().failure(code, SendPhase::kBody, what);
    return error_;
  }

  Lease lease_;
  AnswerHead head_;
  const SilenceTimeout silence_timeout_;
  ChunkDecoder decoder_;
  uint64_t left_;
  const bool reusable_;
  bool ended_ = false;
  TimePoint end_by_ = TimePoint::max();
  Status error_;
};

// Moves the received bytes into `out`; true once the body is whole (or known to be broken: see decoder_).
bool Answer::take(std::string& out) {
  const std::string_view input = lease_->input();
  if (head_.framing == BodyFraming::kChunked) {
    lease_->consume(decoder_.decode(input, out));
    return decoder_.state() != ChunkDecoder::State::kMore;
  }
  const bool counted = head_.framing == BodyFraming::kLength;
  const std::string_view piece = counted ? input.substr(0, static_cast<size_t>(left_)) : input;
  out.append(piece);
  lease_->consume(piece.size());
  left_ -= counted ? piece.size() : 0;
  return counted && left_ == 0;
}

Task<StatusOr<bool>> Answer::read(std::string& out) {
  out.clear();
  if (!error_.ok()) co_return error_;
  if (ended_) co_return false;
  if (!lease_) co_return fail(StatusCode::kUnavailable, "read after cancellation");
  CloseUnlessDone guard{lease_};
  for (;;) {
    const bool whole = take(out);
    if (whole && decoder_.state() == ChunkDecoder::State::kMalformed) {
      co_return fail(StatusCode::kInternal, decoder_.error());
    }
    if (whole) end();
    if (whole || !out.empty()) {
      guard.done = true;
      co_return !out.empty();
    }
    silence_timeout_.begin(*lease_.channel(), end_by_);
    const uint64_t received = lease_->bytes_received();
    std::optional<ChannelEvent> event;
    while (!(event = lease_->poll_event(received))) co_await lease_->next();
    if (event == ChannelEvent::kInput) continue;
    if (event == ChannelEvent::kTimeout && std::chrono::steady_clock::now() >= end_by_)
      co_return fail(StatusCode::kUnavailable, "the body did not end in time");
    if (event == ChannelEvent::kTimeout) {
      const SilenceTimeout::Verdict verdict = silence_timeout_.judge(*lease_.channel());
      if (verdict == SilenceTimeout::Verdict::kWait) continue;
      const Cause cause = cause_of(verdict);
      co_return fail(cause.code, cause.what);
    }
    if (event == ChannelEvent::kEnd && head_.framing == BodyFraming::kUntilClose) {
      end();
      co_return false;
    }
    co_return fail(StatusCode::kUnavailable,
                   "connection closed before the body's end" + tls_failure(*lease_.channel()));
  }
}

Task<StatusOr<std::string>> Answer::read_all(size_t bytes_max) {
  std::string all;
  std::string piece;
  for (;;) {
    const StatusOr<bool> more = co_await read(piece);
    if (!more.ok()) co_return more.status();
    if (!*more) co_return all;
    if (piece.size() > bytes_max - all.size()) {
      co_return fail(StatusCode::kResourceExhausted, absl::StrCat("body over ", bytes_max, " bytes"));
    }
    if (all.empty()) {
      all.swap(piece);
    } else {
      all.append(piece);
    }
  }
}

// Result of one try. `stale`: if the connection came from the pool, it was dead before the request arrived,
// so another may be tried.
struct Attempt {
  Status status;
  std::unique_ptr<ClientAnswer> answer;
  bool stale = false;
  bool wrote = false;  // the socket took some of the request
};

// Reads heads until a final one (1xx are skipped). kFound: `head` is filled and taken from the channel.
enum class HeadOutcome { kFound, kClosed, kTimeout, kGivenUp, kRefused };
struct HeadWanted {
  bool to_head_request;
  const SilenceTimeout& silence_timeout;
};
Task<HeadOutcome> read_answer_head(Lease& lease, HeadWanted wanted, AnswerHead& head, std::string& what) {
  HeadScanner scanner;
  int interim = 0;
  TimePoint whole_by = TimePoint::max();  // counts from a head's first byte
  for (;;) {
    const std::string_view input = lease->input();
    const HeadScanner::Result result = scanner.scan(input);
    if (result == HeadScanner::Result::kFound && scanner.size() <= lease.pool().options.header_bytes_max) {
      const auto fault = parse_answer_head(input.substr(0, scanner.size()), wanted.to_head_request, head);
      lease->consume(scanner.size());
      if (fault) what = fault->message;
      if (fault) co_return HeadOutcome::kRefused;
      if (head.status >= 200) co_return HeadOutcome::kFound;
      if (++interim > kInterimHeadsMax) {
        what = "too many 1xx answers";
        co_return HeadOutcome::kRefused;
      }
      scanner.reset();
      whole_by = TimePoint::max();
      continue;
    }
    if (result == HeadScanner::Result::kBareLineFeed) {
      what = "head line that does not end in CRLF";
      co_return HeadOutcome::kRefused;
    }
    if (result == HeadScanner::Result::kFound || input.size() >= lease.pool().options.header_bytes_max ||
        lease->input_full()) {
      what = absl::StrCat("head over ", lease.pool().options.header_bytes_max, " bytes");
      co_return HeadOutcome::kRefused;
    }
    const std::chrono::milliseconds head_timeout = lease.pool().options.header_timeout;
    if (!input.empty() && whole_by == TimePoint::max())
      whole_by = std::chrono::steady_clock::now() + head_timeout;
    wanted.silence_timeout.begin(*lease.channel(), whole_by);
    const uint64_t received = lease->bytes_received();
    std::optional<ChannelEvent> event;
    while (!(event = lease->poll_event(received))) co_await lease->next();
    if (event == ChannelEvent::kInput) continue;
    if (event != ChannelEvent::kTimeout) co_return HeadOutcome::kClosed;
    if (std::chrono::steady_clock::now() >= whole_by && !wanted.silence_timeout.over()) {
      what = absl::StrCat("head that was not whole ", head_timeout.count(), " ms after its first byte");
      co_return HeadOutcome::kRefused;
    }
    const SilenceTimeout::Verdict verdict = wanted.silence_timeout.judge(*lease.channel());
    if (verdict == SilenceTimeout::Verdict::kGivenUp) co_return HeadOutcome::kGivenUp;
    if (verdict == SilenceTimeout::Verdict::kDeadline) co_return HeadOutcome::kTimeout;
  }
}

// The peer cannot have said this of the request: it came before, or as soon after it as hardly any answer.
bool is_at_once(WriteEvent written, TimePoint written_at, const ClientPool& pool) {
  return written == WriteEvent::kPeerGone ||
         std::chrono::steady_clock::now() - written_at <= pool.options.stale_window;
}

// Runs one exchange over one connection. Closes it on every way out but a good answer.
Task<Attempt> exchange(Lease lease, const std::string& head_bytes, const ClientRequest& request,
                       const SilenceTimeout& silence_timeout) {
  Attempt attempt;
  const uint64_t received_before = lease->bytes_received();
  Pieces pieces;
  pieces.add(head_bytes);
  pieces.add(request.body);
  WriteOptions options;
  options.stop_on_input = true;  // an early answer (413) counts
  WriteEvent written = WriteEvent::kTimeout;
  for (SilenceTimeout::Verdict verdict = SilenceTimeout::Verdict::kWait; written == WriteEvent::kTimeout;) {
    const size_t left = asio::buffer_size(pieces);
    silence_timeout.begin(*lease.channel());
    co_await lease->send_batcher();
    written = co_await lease->write(pieces, options);
    attempt.wrote = asio::buffer_size(pieces) < head_bytes.size() + request.body.size();
    if (written != WriteEvent::kTimeout) break;
    if (asio::buffer_size(pieces) == left || silence_timeout.over())
      verdict = silence_timeout.judge(*lease.channel());
    if (verdict == SilenceTimeout::Verdict::kWait) continue;
    const Cause cause = cause_of(verdict);
    attempt.status = lease.pool().failure(cause.code, SendPhase::kWrite, cause.what);
    co_return attempt;
  }
  const TimePoint written_at = std::chrono::steady_clock::now();
  AnswerHead head;
  std::string what;
  const HeadWanted wanted{request.method == "HEAD", silence_timeout};
  const HeadOutcome outcome = co_await read_answer_head(lease, wanted, head, what);
  if (outcome == HeadOutcome::kFound) {
    const bool reusable = written == WriteEvent::kWritten;
    attempt.stale = head.status == 408 && !head.keep_alive && is_at_once(written, written_at, lease.pool());
    attempt.answer = std::make_unique<Answer>(std::move(lease), std::move(head), silence_timeout, reusable);
    co_return attempt;
  }
  const SendPhase phase = written == WriteEvent::kWritten ? SendPhase::kHead : SendPhase::kWrite;
  if (outcome == HeadOutcome::kRefused) {
    attempt.status = lease.pool().failure(StatusCode::kInternal, phase, what);
  } else if (outcome == HeadOutcome::kTimeout || outcome == HeadOutcome::kGivenUp) {
    const bool given_up = outcome == HeadOutcome::kGivenUp;
    const Cause cause =
        cause_of(given_up ? SilenceTimeout::Verdict::kGivenUp : SilenceTimeout::Verdict::kDeadline);
    attempt.status = lease.pool().failure(cause.code, phase, cause.what);
  } else {
    attempt.status =
        lease.pool().failure(StatusCode::kUnavailable, phase,
                             "connection closed before an answer" + tls_failure(*lease.channel()));
    attempt.stale =
        is_at_once(written, written_at, lease.pool()) && lease->bytes_received() == received_before;
  }
  co_return attempt;
}

}  // namespace

struct HttpClient::Impl : ClientPool {
  using ClientPool::ClientPool;
};

HttpClient::HttpClient(Executor executor, Endpoint endpoint, HttpClientOptions options)
    : impl_(std::make_shared<Impl>(executor, std::move(endpoint), options)) {}

HttpClient::~HttpClient() {
  impl_->close();
}

void HttpClient::close_idle() {
  impl_->close_idle();
}

const Endpoint& HttpClient::endpoint() const {
  return impl_->endpoint;
}

bool HttpClient::has_own_authorization() const {
  return !impl_->options.authorization.empty();
}

HttpClientStats HttpClient::stats() const {
  HttpClientStats stats = impl_->stats;
  stats.idle = impl_->idle_count();
  return stats;
}

Task<StatusOr<std::unique_ptr<ClientAnswer>>> HttpClient::send(const ClientRequest& request,
                                                               Deadline deadline) {
  const std::shared_ptr<Impl> pool = impl_;
  std::string head;
  try {
    head = pool->head_of(request);
  } catch (const std::invalid_argument& e) {
    co_return pool->failure(StatusCode::kInvalidArgument, SendPhase::kConnect, e.what());
  }
  if (deadline.expired(std::chrono::steady_clock::now())) {
    co_return pool->failure(StatusCode::kDeadlineExceeded, SendPhase::kConnect,
                            "the deadline has passed already");
  }
  const SilenceTimeout silence_timeout(request.silence_timeout, request.give_up, deadline);
  pool->follow_name(std::chrono::steady_clock::now());
  bool wrote = false;
  std::shared_ptr<Channel> pooled = pool->take();
  if (pooled) {
    ++pool->stats.reuses;
    pooled->set_deadline(deadline.at);
    Lease lease(pool, std::move(pooled));
    Attempt attempt = co_await exchange(std::move(lease), head, request, silence_timeout);
    if (attempt.answer && !attempt.stale) co_return std::move(attempt.answer);
    if (!attempt.stale) co_return attempt.status;
    ++pool->stats.stale_replaced;
    wrote = attempt.wrote;
  }
  const auto fresh = co_await pool->connect(deadline.at);
  if (!fresh.ok() && wrote) {
    const std::string what = absl::StrCat("connection closed before an answer, and no other to be had: ",
                                          fresh.status().message());
    co_return pool->failure(fresh.status().code(), SendPhase::kHead, what);
  }
  if (!fresh.ok()) co_return fresh.status();
  Lease lease(pool, *fresh);
  Attempt attempt = co_await exchange(std::move(lease), head, request, silence_timeout);
  if (attempt.answer) co_return std::move(attempt.answer);
  co_return attempt.status;
}

}  // namespace troupe
