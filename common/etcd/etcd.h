#pragma once

// Client of etcd (v3) over the HTTP gateway of its members. It keeps to one
// member while that answers; on a failure it tries the next at once, each member
// once. Every call ends: a try takes `timeout` at most. On one io_context thread.
//
// A failed call may have taken effect, or may have been tried twice: puts and leases tolerate that, and a
// transaction reads the outcome in `else_reads`.

#include <memory>
#include <string>
#include <vector>

#include "common/core/time.h"
#include "common/etcd/etcd_wire.h"
#include "common/net/http_client.h"

namespace troupe {

struct EtcdOptions {
  std::vector<Endpoint> members;
  std::shared_ptr<const TlsSource> tls;  // for members with https
  std::chrono::milliseconds timeout{1000};
  // A watch that was silent for this long is recreated: it may be dead.
  std::chrono::seconds watch_silence_max{60};

  // Options for a lease of this length: all of three members can be tried between two keep-alives. The error
  // names the url.
  static StatusOr<EtcdOptions> of(const std::vector<std::string>& urls, std::chrono::seconds lease_ttl);
};

// Delivers changes as they come. Ends when the client fails over from its member.
class EtcdWatch {
 public:
  virtual ~EtcdWatch() = default;
  // kUnavailable and others: the watch has ended; read again, and watch from there.
  virtual Task<StatusOr<etcd::WatchMessage>> next() = 0;
};

class EtcdClient {
 public:
  // REQUIRES: at least one member. `clock` outlives the client.
  EtcdClient(Executor executor, const EtcdOptions& options, const Clock& clock);
  ~EtcdClient();

  // Errors: kUnavailable, kDeadlineExceeded: every member failed (the last one's message); kNotFound: no such
  // lease; kInvalidArgument: etcd refuses the call; kInternal: the peer is not an etcd.
  Task<Status> put(const etcd::Put& put);
  Task<StatusOr<etcd::TxnAnswer>> txn(const etcd::Txn& txn);
  Task<StatusOr<etcd::Lease>> grant(std::chrono::seconds ttl);
  Task<StatusOr<etcd::Lease>> keep_alive(int64_t lease);  // ttl 0: it no longer exists
  Task<Status> revoke(int64_t lease);
  // Watches at the current member only.
  Task<StatusOr<std::unique_ptr<EtcdWatch>>> watch(const std::vector<etcd::KeyRange>& ranges,
                                                   int64_t from_revision);
  void close_idle();
  // Number of failovers from one member to another.
  uint64_t failovers() const { return failovers_; }

 private:
  class Watch;
  Task<StatusOr<std::string>> call(std::string_view path, const std::string& body);
  Task<StatusOr<std::string>> ask(HttpClient& member, std::string_view path, const std::string& body);

  const EtcdOptions options_;
  const Clock& clock_;
  std::vector<std::unique_ptr<HttpClient>> members_;
  size_t current_ = 0;
  uint64_t failovers_ = 0;
};

// A lease kept alive by calling keep() every third of its time. REQUIRES: the caller puts its keys again when
// id() has changed.
class EtcdLease {
 public:
  EtcdLease(EtcdClient& client, std::chrono::seconds ttl, const Clock& clock)
      : client_(client), ttl_(ttl), clock_(clock) {}

  // Renews the lease; grants a new one if there is none, or it expired.
  Task<Status> keep();
  // Revokes the lease, which deletes its keys. REQUIRES: no keep() is running.
  Task<Status> end();
  int64_t id() const { return id_; }  // 0: none yet
  // End of the time for which etcd keeps the lease, by this clock, counted from before the call.
  TimePoint holds_until() const { return holds_until_; }
  std::chrono::seconds ttl() const { return ttl_; }

 private:
  EtcdClient& client_;
  const std::chrono::seconds ttl_;
  const Clock& clock_;
  int64_t id_ = 0;
  TimePoint holds_until_{};
};

}  // namespace troupe
