#pragma once

// The connections to one endpoint: created, kept while idle, reused. Private to common/net.

#include <memory>
#include <vector>

#include "common/net/channel.h"
#include "common/net/http_client.h"

namespace troupe {

// The addresses of a name, as its last answers had them. A resolver that has many gives a few of them with
// each answer, in turn: an address that is absent from one is not gone. It is after kAnswersWithout in a row.
// Pure.
class KnownAddresses {
 public:
  static constexpr int kAnswersWithout = 3;
  static constexpr size_t kMax = 1024;

  // A complete answer; an empty one (the lookup failed) changes nothing.
  void learn(const std::vector<Tcp::endpoint>& answer);
  // Some of an answer: says nothing of the others. No address at all may be known before.
  void add(const std::vector<Tcp::endpoint>& some);
  bool empty() const { return known_.empty(); }
  bool has(const Tcp::endpoint& address) const;

 private:
  struct Known {
    Tcp::endpoint address;
    int answers_without = 0;
  };
  std::vector<Known> known_;
};

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
  // Called with each request: looks the name up anew when that is due, and ends idle connections to
  // addresses that it has no more. Does not wait.
  void follow_name(TimePoint now);
  void close_idle();
  void close();  // closes idle connections and keeps none from now on

  // Opens a connection, with its deadline set to `deadline`, and reports it to options.on_connect.
  Task<StatusOr<std::shared_ptr<Channel>>> connect(TimePoint deadline);

  // The request's head as the peer is to get it. Throws std::invalid_argument for what cannot be sent.
  std::string head_of(const ClientRequest& request) const;

  size_t idle_count() const { return idle_.size(); }
  Status failure(absl::StatusCode code, SendPhase phase, std::string_view what) const;

  const Executor executor;
  const Endpoint endpoint;
  const std::string authority;
  const HttpClientOptions options;
  HttpClientStats stats;  // without idle

 private:
  Task<StatusOr<std::shared_ptr<Channel>>> resolve_and_connect(TimePoint deadline);
  Task<StatusOr<std::vector<Tcp::endpoint>>> resolve(TimePoint until);
  StatusOr<std::vector<Tcp::endpoint>> allowed(std::vector<Tcp::endpoint> found) const;
  Task<Status> secure(std::shared_ptr<Channel> channel, absl::StatusCode code_when_late);
  Status connect_failure(const ErrorCode& error, absl::StatusCode code) const;
  void on_idle_event(Channel* channel);
  void learn_addresses(const std::vector<Tcp::endpoint>& addresses);
  bool has_address(Channel& channel) const;
  std::vector<Tcp::endpoint> looked_up() const;  // by options.lookup

  std::vector<std::shared_ptr<Channel>> idle_;
  bool closed_ = false;
  KnownAddresses addresses_;  // of the name; empty: not known
  TimePoint next_lookup_{};   // zero: none is planned yet
  bool looks_up_ = false;
};

}  // namespace troupe
