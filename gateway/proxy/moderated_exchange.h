#pragma once

// Moderation on a request's way. Before: its prompt is judged, and a blocked one refused. After: what the
// client is to have passes through here, and each event (or the whole answer) waits until its text has a
// verdict; a blocked text ends the answer with finish_reason content_filter, and its worker is left. The
// worker is not read meanwhile, so what is held is bounded by windows and what one read brings. A whole
// answer that comes in pieces, as long ones do, is gathered; one that is too long for that has no verdict,
// and goes the way of on_error.
//
// Lives in the frame of the request's coroutine, on the event loop's thread.

#include <optional>
#include <string>
#include <string_view>

#include "common/api/error.h"
#include "common/net/http_server.h"
#include "gateway/access/moderation.h"
#include "gateway/proxy/moderation_hook.h"
#include "gateway/proxy/request_context.h"

namespace troupe {

// The error: 400 content_filter. Sets context.account.verdict. `note`: for the answer's header, or empty.
Task<ApiResult<bool>> moderate_prompt(ModerationHook& hook, const HttpRequest& request,
                                      RequestContext& context);

class ModeratedExchange final : public Exchange {
 public:
  ModeratedExchange(Exchange& inner, ModerationHook& hook, RequestContext& context)
      : inner_(inner),
        hook_(hook),
        context_(context),
        held_(hook.options().window_bytes, hook.options().answer == AnswerModeration::kWhole) {}

  const HttpRequest& request() const override { return inner_.request(); }
  Task<void> respond(int status, const HeaderList& headers, std::string body) override;
  Task<void> start(int status, const HeaderList& headers) override;
  Task<void> write(std::string_view bytes) override;
  Task<void> finish() override;
  bool send_ahead(int status, const HeaderList& headers, std::string_view bytes) override {
    return inner_.send_ahead(status, headers, bytes);
  }
  bool head_sent() const override { return started_ || inner_.head_sent(); }
  bool promised_events() const override { return inner_.promised_events(); }
  void close_after() override { inner_.close_after(); }
  void cut() override { inner_.cut(); }
  CancelReason cancel_reason() const override { return inner_.cancel_reason(); }
  std::string remote_address() const override { return inner_.remote_address(); }
  uint64_t bytes_sent() const override { return inner_.bytes_sent(); }
  Executor executor() const override { return inner_.executor(); }

 private:
  Task<ModerationVerdict> ask(int64_t choice, std::string text);
  Task<std::string> judge();
  Task<std::string> judge_whole(std::string body);
  Task<void> gather(std::string_view bytes);

  Exchange& inner_;
  ModerationHook& hook_;
  RequestContext& context_;
  HeldEvents held_;
  bool started_ = false;
  bool events_ = false;  // of a stream
  struct Gathered {
    HeaderList headers;
    std::string body = {};
  };
  std::optional<Gathered> gathered_;  // else bytes pass
};

}  // namespace troupe
