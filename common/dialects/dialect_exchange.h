#pragma once

// An exchange in another API's form, for handlers that speak ours alone: request() is the translated one, and
// all that the handler answers goes out translated. Its headers, keep-alives, cancellation and back pressure
// are the client's own, so that a handler makes no difference.
//
// Lives in the frame of the request's coroutine, on the event loop's thread.

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/dialects/dialect.h"
#include "common/dialects/routes.h"
#include "common/dialects/translator.h"
#include "common/net/http_server.h"

namespace troupe {

class DialectExchange;

// The generations that are under way, by the key that their client gave them: to be looked at, and ended, by
// further requests of the same client. One a program; the event loop's thread.
class Generations {
 public:
  // The text of the newest one of that client and key; empty: there is none.
  std::string text_of(std::string_view client, std::string_view key) const;
  bool abort(std::string_view client, std::string_view key);
  // For /api/extra/perf.
  std::string perf_json(TimePoint now) const;

 private:
  friend class DialectExchange;
  std::multimap<std::string, DialectExchange*, std::less<>> running_;
  int64_t total_ = 0;
  const TimePoint began_ = std::chrono::steady_clock::now();
};

class DialectExchange final : public Exchange {
 public:
  // `inner` and `generations` outlive this.
  DialectExchange(Exchange& inner, const DialectRoute& route, Generations& generations);
  ~DialectExchange() override;
  DialectExchange(const DialectExchange&) = delete;
  DialectExchange& operator=(const DialectExchange&) = delete;

  // Why the request cannot be translated, for the handler to refuse it with; nullopt: it can.
  const std::optional<ApiError>& fault() const { return fault_; }
  std::string_view model() const { return translated_.model; }
  bool aborted() const { return aborted_; }
  // After a handler that was aborted has ended: gives the client what there is.
  Task<void> end_aborted();

  const HttpRequest& request() const override { return request_; }
  std::string_view asked_path() const override { return inner_.request().path; }
  Task<void> respond(int status, const HeaderList& headers, std::string body) override;
  Task<void> start(int status, const HeaderList& headers) override;
  Task<void> write(std::string_view bytes) override;
  Task<void> finish() override;
  bool send_ahead(int status, const HeaderList& headers, std::string_view bytes) override;
  bool head_sent() const override { return held_ || inner_.head_sent(); }
  bool promised_events() const override { return inner_.promised_events(); }
  void close_after() override { inner_.close_after(); }
  void cut() override { inner_.cut(); }
  CancelReason cancel_reason() const override {
    return aborted_ ? CancelReason::kClientGone : inner_.cancel_reason();
  }
  std::string remote_address() const override { return inner_.remote_address(); }
  uint64_t bytes_sent() const override { return inner_.bytes_sent(); }
  Executor executor() const override { return inner_.executor(); }

 private:
  friend class Generations;
  // An answer that is given whole once it is complete.
  struct Held {
    int status = 200;
    HeaderList headers;
    std::string body;  // ours, or already translated events
  };
  static TranslatedRequest translate(const HttpRequest& asked, const DialectRoute& route,
                                     std::optional<ApiError>& fault);
  std::string control_json() const;
  Task<void> respond_held();

  Exchange& inner_;
  Generations& generations_;
  std::optional<ApiError> fault_;
  TranslatedRequest translated_;
  HttpRequest request_;
  AnswerTranslator translator_;
  bool streams_ = false;  // events came, or will
  std::optional<Held> held_;
  bool aborted_ = false;
  bool done_ = false;  // the client has its answer, or its end
};

}  // namespace troupe
