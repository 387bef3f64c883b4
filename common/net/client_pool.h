#pragma once

// The connections to one endpoint: created, kept while idle, reused. Private to common/net.

#include <memory>
#include <vector>

#include "common/net/channel.h"
#include "common/net/http_client.h"

namespace troupe {

class ClientPool : public std::enable_shared_from_this<ClientPool> {
 public:
  ClientPool(Executor ex, Endpoint endpoint_in, HttpClientOptions options_in)
      : executor(ex),
        endpoint(std::move(endpoint_in)),
        authority(endpoint.authority()),
        options(options_in) {}
  ~ClientPool() { close_idle(); }

  // Returns the most recently used connection (its congestion window
  // is warm and the others may idle out), or null.
  std::shared_ptr<Channel> take();
  // REQUIRES: the exchange was complete.
  void give_back(std::shared_ptr<Channel> channel);
  void close_idle();
  void close();  // closes idle connections and keeps none from now on

  // Opens a connection, with its deadline set to `deadline`, and reports it to options.on_connect.
  Task<StatusOr<std::shared_ptr<Channel>>> connect(TimePoint deadline);

  size_t idle_count() const { return idle_.size(); }
  Status failure(absl::StatusCode code, SendPhase phase, std::string_view what) const;

  const Executor executor;
  const Endpoint endpoint;
  const std::string authority;
  const HttpClientOptions options;
  HttpClientStats stats;  // without idle

 private:
  Task<StatusOr<std::shared_ptr<Channel>>> connect_untold(TimePoint deadline);
  Task<StatusOr<std::vector<Tcp::endpoint>>> resolve(TimePoint until);
  Task<Status> secure(std::shared_ptr<Channel> channel, absl::StatusCode code_when_late);
  Status connect_failure(const ErrorCode& error, absl::StatusCode code) const;
  void on_idle_event(Channel* channel);

  std::vector<std::shared_ptr<Channel>> idle_;
  bool closed_ = false;
};

}  // namespace troupe
