#include "common/etcd/etcd.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe {
namespace {

HttpClientOptions client_options(const EtcdOptions& options) {
  HttpClientOptions client;
  client.idle_connections_max = 4;
  client.connect_timeout = options.timeout;
  client.tls = options.tls;
  return client;
}

// Maps the HTTP code of a gRPC status. Errors that another member may not have become kUnavailable.
Status refused(int http_status, std::string_view body) {
  const std::string message = absl::StrCat("etcd: HTTP ", http_status, ": ", etcd::error_text(body));
  if (http_status == 404) return absl::NotFoundError(message);
  if (http_status >= 400 && http_status < 500 && http_status != 408 && http_status != 429)
    return absl::InvalidArgumentError(message);
  return absl::UnavailableError(message);
}

bool final_word(const Status& status) {
  return absl::IsNotFound(status) || absl::IsInvalidArgument(status);
}

}  // namespace

StatusOr<EtcdOptions> EtcdOptions::of(const std::vector<std::string>& urls, std::chrono::seconds lease_ttl) {
  EtcdOptions options;
  options.timeout =
      std::min<std::chrono::milliseconds>(options.timeout, std::chrono::milliseconds(lease_ttl) / 5);
  for (size_t i = 0; i < urls.size(); ++i) {
    const auto endpoint = Endpoint::parse(urls[i]);
    if (!endpoint.ok()) return annotate(endpoint.status(), absl::StrCat("etcd_endpoints[", i, "]"));
    options.members.push_back(*endpoint);
  }
  return options;
}

class EtcdClient::Watch : public EtcdWatch {
 public:
  Watch(EtcdClient& client, std::string body)
      : client_(client), failovers_(client.failovers_), body_(std::move(body)) {
    request_.method = "POST";
    request_.target = "/v3/watch";
    request_.headers.emplace_back("content-type", "application/json");
    request_.body = body_;
    request_.silence_timeout = client.options_.timeout;
    request_.give_up = [this] { return gives_up(); };
    received_at_ = client.clock_.now();
  }

  Task<Status> open() {
    auto answer = co_await client_.members_[client_.current_]->send(request_, Deadline::never());
    if (!answer.ok()) co_return answer.status();
    answer_ = *std::move(answer);
    if (answer_->status() != 200) co_return refused(answer_->status(), "");
    co_return absl::OkStatus();
  }

  Task<StatusOr<etcd::WatchMessage>> next() override {
    std::string piece;
    std::string_view line;
    while (!lines_.next(line)) {
      const auto more = co_await answer_->read(piece);
      if (!more.ok()) co_return more.status();
      if (!*more) co_return absl::UnavailableError("etcd: the watch ended");
      received_at_ = client_.clock_.now();
      const Status fed = lines_.feed(piece);
      if (!fed.ok()) co_return fed;
    }
    co_return etcd::parse_watch(line);
  }

 private:
  // Called after every `timeout` of silence. etcd confirms a watch at once, then sends nothing but changes.
  bool gives_up() const {
    return answer_ == nullptr || client_.failovers_ != failovers_ ||
           client_.clock_.now() > received_at_ + client_.options_.watch_silence_max;
  }

  EtcdClient& client_;
  const uint64_t failovers_;  // at the watch's creation
  const std::string body_;
  ClientRequest request_;
  etcd::Lines lines_{etcd::kAnswerBytesMax};
  TimePoint received_at_;
  std::unique_ptr<ClientAnswer> answer_;
};

EtcdClient::EtcdClient(Executor executor, const EtcdOptions& options, const Clock& clock)
    : options_(options), clock_(clock) {
  for (const Endpoint& member : options_.members)
    members_.push_back(std::make_unique<HttpClient>(executor, member, client_options(options_)));
}

EtcdClient::~EtcdClient() = default;

void EtcdClient::close_idle() {
  for (const auto& member : members_) member->close_idle();
}

Task<StatusOr<std::string>> EtcdClient::ask(HttpClient& member, std::string_view path,
                                            const std::string& body) {
  ClientRequest request;
  request.method = "POST";
  request.target = std::string(path);
  request.headers.emplace_back("content-type", "application/json");
  request.body = body;
  const Deadline deadline = Deadline::after(clock_.now(), options_.timeout);
  auto answer = co_await member.send(request, deadline);
  if (!answer.ok()) co_return answer.status();
  auto text = co_await (*answer)->read_all(etcd::kAnswerBytesMax);
  if (text.ok() && (*answer)->status() != 200) co_return refused((*answer)->status(), *text);
  co_return text;
}

Task<StatusOr<std::string>> EtcdClient::call(std::string_view path, const std::string& body) {
  Status last;
  for (size_t tries = 0; tries < members_.size(); ++tries) {
    const size_t asked = current_;
    auto answer = co_await ask(*members_[asked], path, body);
    if (answer.ok() || final_word(answer.status())) co_return answer;
    last = annotate(answer.status(), members_[asked]->endpoint().authority());
    if (asked != current_) continue;  // another call has already failed over
    current_ = (current_ + 1) % members_.size();
    failovers_ += 1;
  }
  co_return last;
}

Task<Status> EtcdClient::put(const etcd::Put& put) {
  const std::string body = etcd::put_body(put);
  const auto answer = co_await call("/v3/kv/put", body);
  co_return answer.status();
}

Task<StatusOr<etcd::TxnAnswer>> EtcdClient::txn(const etcd::Txn& txn) {
  const std::string body = etcd::txn_body(txn);
  const auto answer = co_await call("/v3/kv/txn", body);
  if (!answer.ok()) co_return answer.status();
  co_return etcd::parse_txn(*answer);
}

Task<StatusOr<etcd::Lease>> EtcdClient::grant(std::chrono::seconds ttl) {
  const std::string body = etcd::grant_body(ttl);
  const auto answer = co_await call("/v3/lease/grant", body);
  if (!answer.ok()) co_return answer.status();
  co_return etcd::parse_grant(*answer);
}

Task<StatusOr<etcd::Lease>> EtcdClient::keep_alive(int64_t lease) {
  const std::string body = etcd::lease_body(lease);
  const auto answer = co_await call("/v3/lease/keepalive", body);
  if (!answer.ok()) co_return answer.status();
  co_return etcd::parse_keep_alive(*answer);
}

Task<Status> EtcdClient::revoke(int64_t lease) {
  const std::string body = etcd::lease_body(lease);
  const auto answer = co_await call("/v3/lease/revoke", body);
  co_return answer.status();
}

Task<StatusOr<std::unique_ptr<EtcdWatch>>> EtcdClient::watch(const std::vector<etcd::KeyRange>& ranges,
                                                             int64_t from_revision) {
  auto watch = std::make_unique<Watch>(*this, etcd::watch_body(ranges, from_revision));
  const Status opened = co_await watch->open();
  if (!opened.ok()) co_return opened;
  std::unique_ptr<EtcdWatch> made = std::move(watch);
  co_return made;
}

Task<Status> EtcdLease::keep() {
  const TimePoint asked_at = clock_.now();
  if (id_ != 0) {
    const auto kept = co_await client_.keep_alive(id_);
    if (!kept.ok()) co_return kept.status();
    if (kept->ttl.count() > 0) {
      holds_until_ = asked_at + kept->ttl;
      co_return absl::OkStatus();
    }
    id_ = 0;
  }
  const auto granted = co_await client_.grant(ttl_);
  if (!granted.ok()) co_return granted.status();
  id_ = granted->id;
  holds_until_ = asked_at + granted->ttl;
  co_return absl::OkStatus();
}

Task<Status> EtcdLease::end() {
  if (id_ == 0) co_return absl::OkStatus();
  const int64_t ended = std::exchange(id_, 0);
  holds_until_ = {};
  const Status revoked = co_await client_.revoke(ended);
  co_return revoked;
}

}  // namespace troupe
