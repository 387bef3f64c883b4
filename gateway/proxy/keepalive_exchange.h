#pragma once

// A stream's answer that says something while its worker says nothing (sse_keepalive_ms): a comment, which
// clients skip, whenever nothing else went out for the interval, also while the request waits for room. So
// that neither a proxy in between nor the client takes a long prompt for a dead connection.
//
// The first comment takes the status line and the headers with it. For the code that answers the request that
// makes no difference: head_sent() stays false until the answer itself begins, so another worker may still be
// tried; start() then only goes on, and respond() (an error) becomes an error event, the stream's last.
//
// Lives in the frame of the request's coroutine, on the event loop's thread.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/net/http_server.h"
#include "common/net/timer.h"

namespace troupe {

class KeepaliveExchange final : public Exchange {
 public:
  explicit KeepaliveExchange(Exchange& inner) : inner_(inner) {}
  ~KeepaliveExchange() override;
  KeepaliveExchange(const KeepaliveExchange&) = delete;
  KeepaliveExchange& operator=(const KeepaliveExchange&) = delete;

  // Begins; `headers` makes those of an answer that begins with a comment. Called once at most.
  void keep_alive(Duration interval, std::function<HeaderList()> headers);

  const HttpRequest& request() const override { return inner_.request(); }
  Task<void> respond(int status, const HeaderList& headers, std::string body) override;
  Task<void> start(int status, const HeaderList& headers) override;
  Task<void> write(std::string_view bytes) override;
  Task<void> finish() override;
  bool send_ahead(int status, const HeaderList& headers, std::string_view bytes) override;
  bool head_sent() const override { return begun_ && inner_.head_sent(); }
  bool promised_events() const override { return opened(); }
  void close_after() override { inner_.close_after(); }
  void cut() override { inner_.cut(); }
  CancelReason cancel_reason() const override { return inner_.cancel_reason(); }
  std::string remote_address() const override { return inner_.remote_address(); }
  uint64_t bytes_sent() const override { return inner_.bytes_sent(); }
  Executor executor() const override { return inner_.executor(); }

 private:
  struct Ticker;
  Task<void> end_with_error(int status, std::string body);
  void tick();
  // Only comments went out so far.
  bool opened() const { return !begun_ && inner_.head_sent(); }

  Exchange& inner_;
  std::shared_ptr<Ticker> ticker_;  // its callback may outlive this by a turn of the event loop
  bool begun_ = false;              // the answer itself
  bool at_event_end_ = true;        // a comment may follow
  bool ended_ = false;              // in its place
};

}  // namespace troupe
