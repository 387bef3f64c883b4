#pragma once

// etcd (v3), asked over the HTTP gateway that each of its members has. Whichever member answers is asked as
// long as it does; one that does not is left for the next at once, and so on once round. Every call ends: a
// try takes `timeout` at most. On one io_context thread.
//
// What a call was to do may have been done although it failed, or was tried twice: puts and leases bear that,
// a transaction says in `else_reads` what became of it.

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
  // A watch that has brought nothing for so long is made anew: it may be one that never will.
  std::chrono::seconds watch_silence_max{60};

  // For a lease of this length: all of three members can be tried between two times that it is kept. The
  // error names the url.
  static StatusOr<EtcdOptions> of(const std::vector<std::string>& urls, std::chrono::seconds lease_ttl);
};

// Changes as they come. Ends where its member is not asked any more.
class EtcdWatch {
 public:
  virtual ~EtcdWatch() = default;
  // kUnavailable and others: it is over; look again, and watch from there.
  virtual Task<StatusOr<etcd::WatchMessage>> next() = 0;
};

class EtcdClient {
 public:
  // REQUIRES: at least one member. `clock` outlives the client.
  EtcdClient(Executor executor, const EtcdOptions& options, const Clock& clock);
  ~EtcdClient();

  // kUnavailable, kDeadlineExceeded: no member could do it (the last one's words); kNotFound: no such lease;
  // kInvalidArgument: etcd refuses it; kInternal: what answers is no etcd.
  Task<Status> put(const etcd::Put& put);
  Task<StatusOr<etcd::TxnAnswer>> txn(const etcd::Txn& txn);
  Task<StatusOr<etcd::Lease>> grant(std::chrono::seconds ttl);
  Task<StatusOr<etcd::Lease>> keep_alive(int64_t lease);  // ttl 0: there is none any more
  Task<Status> revoke(int64_t lease);
  // At the member that answers now, and no other.
  Task<StatusOr<std::unique_ptr<EtcdWatch>>> watch(const std::vector<etcd::KeyRange>& ranges,
                                                   int64_t from_revision);
  void close_idle();
  // How often one member was left for another.
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

// A lease that is kept: as long as keep() is called every third of its time. Whatever is put under it is to
// be put again when id() has changed.
class EtcdLease {
 public:
  EtcdLease(EtcdClient& client, std::chrono::seconds ttl, const Clock& clock)
      : client_(client), ttl_(ttl), clock_(clock) {}

  // Granted where there is none, or none any more.
  Task<Status> keep();
  // Gives it back, and with it all that is under it. Nobody else may be in keep().
  Task<Status> end();
  int64_t id() const { return id_; }  // 0: none yet
  // Until then etcd keeps it, by the clock here: counted from before it was asked.
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
