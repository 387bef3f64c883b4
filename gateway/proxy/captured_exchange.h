#pragma once

// A request that the gateway makes of itself while it answers another one: it goes the way of a client's,
// with that client's headers, and its answer is kept here instead of sent. Only for endpoints that respond().

#include <string>
#include <utility>

#include "common/net/http_server.h"

namespace troupe {

class CapturedExchange final : public Exchange {
 public:
  CapturedExchange(Exchange& outer, HttpRequest request) : outer_(outer), request_(std::move(request)) {}

  int status() const { return status_; }  // 0: there was no answer
  const std::string& body() const { return body_; }

  const HttpRequest& request() const override { return request_; }
  Task<void> respond(int status, const HeaderList&, std::string body) override {
    status_ = status;
    body_ = std::move(body);
    co_return;
  }
  Task<void> start(int status, const HeaderList&) override {
    status_ = status;
    co_return;
  }
  Task<void> write(std::string_view bytes) override {
    body_ += bytes;
    co_return;
  }
  Task<void> finish() override { co_return; }
  bool send_ahead(int, const HeaderList&, std::string_view) override { return false; }
  bool head_sent() const override { return false; }
  void close_after() override { outer_.close_after(); }
  void cut() override { outer_.cut(); }
  CancelReason cancel_reason() const override { return outer_.cancel_reason(); }
  std::string remote_address() const override { return outer_.remote_address(); }
  uint64_t bytes_sent() const override { return body_.size(); }
  Executor executor() const override { return outer_.executor(); }

 private:
  Exchange& outer_;
  const HttpRequest request_;
  int status_ = 0;
  std::string body_;
};

}  // namespace troupe
