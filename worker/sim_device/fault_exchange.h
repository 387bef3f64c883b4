#pragma once

// Breaks an answer off: passes everything on to the real exchange until the given write (heartbeats are not
// counted) or the write that would end the answer, and closes the connection instead. An answer in one piece
// is closed before its first byte.

#include <string>
#include <string_view>

#include "common/net/http_server.h"

namespace troupe {

class FaultExchange final : public Exchange {
 public:
  // `write_index` counts from 1. `inner` outlives this.
  FaultExchange(Exchange& inner, int write_index) : inner_(inner), writes_left_(write_index) {}

  const HttpRequest& request() const override { return inner_.request(); }
  Task<void> respond(int status, const HeaderList& headers, std::string body) override;
  Task<void> start(int status, const HeaderList& headers) override { return inner_.start(status, headers); }
  Task<void> write(std::string_view bytes) override;
  Task<void> finish() override;
  bool send_ahead(int status, const HeaderList& headers, std::string_view bytes) override {
    return inner_.send_ahead(status, headers, bytes);
  }
  bool head_sent() const override { return inner_.head_sent(); }
  void close_after() override { inner_.close_after(); }
  void cut() override { inner_.cut(); }
  CancelReason cancel_reason() const override { return inner_.cancel_reason(); }
  std::string remote_address() const override { return inner_.remote_address(); }
  uint64_t bytes_sent() const override { return inner_.bytes_sent(); }
  Executor executor() const override { return inner_.executor(); }

 private:
  [[noreturn]] void break_off();

  Exchange& inner_;
  int writes_left_;
};

}  // namespace troupe
