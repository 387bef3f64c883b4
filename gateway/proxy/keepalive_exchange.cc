#include "gateway/proxy/keepalive_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/api/error.h"
#include "common/json/json.h"
#include "gateway/upstream/error_forms.h"
#include "gateway/upstream/stream_events.h"

namespace troupe {

namespace {

constexpr std::string_view kComment = ": keep-alive\n\n";

Task<void> nothing() {
  co_return;
}

// An answer that is not a stream's, as an error of one line.
std::string error_json(int status, std::string_view body) {
  const auto value = parse_json(body);
  if (status >= 400 && value.ok()) return to_json(*value);
  ApiError error = ApiError::internal(status < 400 ? std::string("the worker did not stream its answer")
                                                   : absl::StrCat("the worker answered ", status));
  error.http_status = status < 400 ? 502 : status;
  if (status < 400) error.code = "bad_gateway";
  return error.to_json();
}

}  // namespace

struct KeepaliveExchange::Ticker : std::enable_shared_from_this<KeepaliveExchange::Ticker> {
  Ticker(KeepaliveExchange& exchange, Duration every)
      : owner(&exchange), interval(every), timer(exchange.executor()) {}

  void arm(TimePoint at) {
    timer.expires_at(at);
    timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error && self->owner != nullptr) self->owner->tick();
    });
  }
  void stop() {
    owner = nullptr;
    timer.cancel();
  }

  KeepaliveExchange* owner;  // null: nothing more is to be said
  const Duration interval;
  std::function<HeaderList()> headers;
  TimePoint last_sent{};
  Timer timer;
};

KeepaliveExchange::~KeepaliveExchange() {
  if (ticker_) ticker_->stop();
}

void KeepaliveExchange::keep_alive(Duration interval, std::function<HeaderList()> headers) {
  ticker_ = std::make_shared<Ticker>(*this, interval);
  ticker_->headers = std::move(headers);
  ticker_->last_sent = std::chrono::steady_clock::now();
  ticker_->arm(ticker_->last_sent + interval);
}

void KeepaliveExchange::tick() {
  const TimePoint now = std::chrono::steady_clock::now();
  if (now >= ticker_->last_sent + ticker_->interval) {
    if (at_event_end_) {
      HeaderList headers;
      if (!inner_.head_sent()) headers = ticker_->headers();
      inner_.send_ahead(200, headers, kComment);
    }
    ticker_->last_sent = now;
  }
  ticker_->arm(ticker_->last_sent + ticker_->interval);
}

bool KeepaliveExchange::send_ahead(int status, const HeaderList& headers, std::string_view bytes) {
  return inner_.send_ahead(status, headers, bytes);
}

Task<void> KeepaliveExchange::start(int status, const HeaderList& headers) {
  const bool is_open = opened();
  const bool has_events = is_event_stream(find_header(headers, "content-type"));
  begun_ = true;
  if (!has_events && ticker_) ticker_->stop();
  if (!is_open) {
    co_await inner_.start(status, headers);
  } else if (!has_events) {
    co_await end_with_error(status, "");
    ended_ = true;
  }
}

Task<void> KeepaliveExchange::write(std::string_view bytes) {
  if (ended_) return nothing();
  if (ticker_) ticker_->last_sent = std::chrono::steady_clock::now();
  if (!bytes.empty()) at_event_end_ = bytes.ends_with("\n\n") || bytes.ends_with("\r\n\r\n");
  return inner_.write(bytes);
}

Task<void> KeepaliveExchange::finish() {
  if (ticker_) ticker_->stop();
  if (ended_) return nothing();
  return inner_.finish();
}

Task<void> KeepaliveExchange::respond(int status, const HeaderList& headers, std::string body) {
  if (ticker_) ticker_->stop();
  const bool is_open = opened();
  begun_ = true;
  if (is_open) return end_with_error(status, std::move(body));
  return inner_.respond(status, headers, std::move(body));
}

Task<void> KeepaliveExchange::end_with_error(int status, std::string body) {
  const int shown = status < 400 ? 502 : status;
  const std::string event =
      error_event_for(error_form(request().path), shown, error_json(status, body), /*events=*/0);
  co_await inner_.write(event);
  co_await inner_.finish();
}

}  // namespace troupe
