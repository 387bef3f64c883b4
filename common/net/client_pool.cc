// An idle connection keeps a read outstanding (Channel::watch), so its end is seen when it comes and not at
// its next use; what is left is the race with a peer that closes just then, which HttpClient::send repairs.

#include "common/net/client_pool.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/core/host_scope.h"
#include "common/net/http_head.h"
#include "common/net/http_write.h"

namespace troupe {
namespace {

constexpr size_t kBufferBytes = 64u << 10;
constexpr size_t kAddressesMax = 8;
constexpr size_t kHeadBytesUsual = 1024;  // one allocation instead of one a doubling
constexpr absl::string_view kPhasePayload = "troupe/send_phase";

std::string_view phase_name(SendPhase phase) {
  switch (phase) {
    case SendPhase::kConnect:
      return "connect";
    case SendPhase::kWrite:
      return "write";
    case SendPhase::kHead:
      return "head";
    case SendPhase::kBody:
      return "body";
  }
  return "unknown";
}

// Remedy for an error of this machine that says nothing about the peer; empty for all others.
std::string_view local_remedy(const ErrorCode& error) {
  namespace errc = boost::system::errc;
  if (error == errc::too_many_files_open) return "raise the limit of open files (ulimit -n)";
  if (error == errc::too_many_files_open_in_system) return "raise the system's limit of files (fs.file-max)";
  if (error == errc::no_buffer_space || error == errc::not_enough_memory) {
    return "free memory, or raise what sockets may use (net.ipv4.tcp_mem)";
  }
  if (error == errc::address_not_available) {
    return "no local port is free (widen net.ipv4.ip_local_port_range), or no address of that family is here";
  }
  return {};
}

// Closes in good order: no exchange is cut short.
void end(Channel& channel) {
  channel.send_close_notify();
  channel.close();
}

// Closes a connection that is not handed on, also when its coroutine is cancelled: the pending connect would
// keep it alive.
struct CloseUnlessHandedOn {
  std::shared_ptr<Channel> channel;
  ~CloseUnlessHandedOn() {
    if (channel) channel->close();
  }
};

}  // namespace

void KnownAddresses::learn(const std::vector<Tcp::endpoint>& answer) {
  if (answer.empty()) return;
  for (Known& known : known_) known.answers_without += 1;
  add(answer);
  std::erase_if(known_, [](const Known& known) { return known.answers_without >= kAnswersWithout; });
}

void KnownAddresses::add(const std::vector<Tcp::endpoint>& some) {
  for (const Tcp::endpoint& address : some) {
    const auto found = std::find_if(known_.begin(), known_.end(),
                                    [&address](const Known& known) { return known.address == address; });
    if (found != known_.end()) {
      found->answers_without = 0;
    } else if (known_.size() < kMax) {
      known_.push_back({address});
    }
  }
}

bool KnownAddresses::has(const Tcp::endpoint& address) const {
  return std::any_of(known_.begin(), known_.end(),
                     [&address](const Known& known) { return known.address == address; });
}

SendPhase send_phase(const Status& status) {
  const auto payload = status.GetPayload(kPhasePayload);
  for (const SendPhase phase : {SendPhase::kWrite, SendPhase::kHead, SendPhase::kBody}) {
    if (payload && *payload == to_absl(phase_name(phase))) return phase;
  }
  return SendPhase::kConnect;
}

Status ClientPool::failure(absl::StatusCode code, SendPhase phase, std::string_view what) const {
  const std::string_view name = phase_name(phase);
  Status status(code, absl::StrCat(authority, ": ", to_absl(name), ": ", to_absl(what)));
  status.SetPayload(kPhasePayload, absl::Cord(to_absl(name)));
  return status;
}

Status ClientPool::connect_failure(const ErrorCode& error, absl::StatusCode code) const {
  const std::string_view remedy = local_remedy(error);
  if (remedy.empty()) return failure(code, SendPhase::kConnect, error.message());
  return failure(absl::StatusCode::kResourceExhausted, SendPhase::kConnect,
                 absl::StrCat(error.message(), ": ", to_absl(remedy)));
}

std::string ClientPool::head_of(const ClientRequest& request) const {
  std::string head;
  head.reserve(kHeadBytesUsual);
  RequestHeadSpec spec;
  const std::string below = options.path.empty() ? "" : options.path + request.target;
  HeaderList headers;
  spec.method = request.method;
  spec.target = options.path.empty() ? request.target : below;
  spec.authority = authority;
  spec.headers = &request.headers;
  if (!options.authorization.empty()) {
    headers = request.headers;
    std::erase_if(headers, [this](const auto& header) {
      return equals_ignore_case(header.first, "authorization") ||
             equals_ignore_case(header.first, options.authorization_header);
    });
    headers.emplace_back(options.authorization_header, options.authorization);
    spec.headers = &headers;
  }
  spec.content_length = request.body.size();
  append_request_head(head, spec);
  return head;
}

std::shared_ptr<Channel> ClientPool::take() {
  while (!idle_.empty()) {
    std::shared_ptr<Channel> channel = std::move(idle_.back());
    idle_.pop_back();
    if (!channel->ended() && !channel->expired() && channel->input().empty()) return channel;
    end(*channel);
  }
  return nullptr;
}

void ClientPool::give_back(std::shared_ptr<Channel> channel) {
  const bool usable = !channel->ended() && channel->input().empty() && has_address(*channel);
  if (closed_ || !usable || idle_.size() >= options.idle_connections_max) return end(*channel);
  channel->set_deadline(std::chrono::steady_clock::now() + options.idle_timeout);
  channel->watch();
  idle_.push_back(std::move(channel));
}

// Any event on an idle connection (its end, unexpected bytes, its time-out) ends it.
void ClientPool::on_idle_event(Channel* channel) {
  const auto same = [channel](const std::shared_ptr<Channel>& other) { return other.get() == channel; };
  const auto found = std::find_if(idle_.begin(), idle_.end(), same);
  if (found == idle_.end()) return;
  const std::shared_ptr<Channel> gone = std::move(*found);
  idle_.erase(found);
  end(*gone);
}

void ClientPool::close_idle() {
  for (const std::shared_ptr<Channel>& channel : idle_) end(*channel);
  idle_.clear();
}

void ClientPool::close() {
  closed_ = true;
  close_idle();
}

std::vector<Tcp::endpoint> ClientPool::looked_up() const {
  std::vector<Tcp::endpoint> found;
  for (const auto& [address, port] : options.lookup(endpoint.host, endpoint.port)) {
    ErrorCode error;
    const auto parsed = asio::ip::make_address(address, error);
    if (!error) found.emplace_back(parsed, port);
  }
  return found;
}

void ClientPool::follow_name(TimePoint now) {
  if (options.resolve_interval <= Duration::zero() || looks_up_ || now < next_lookup_) return;
  const bool first = next_lookup_ == TimePoint{};  // new connections look up by themselves
  next_lookup_ = now + options.resolve_interval;
  ErrorCode error;
  asio::ip::make_address(endpoint.host, error);
  if (!error) next_lookup_ = TimePoint::max();  // it is no name
  if (first || !error) return;
  if (options.lookup) return learn_addresses(looked_up());
  looks_up_ = true;
  const auto resolver = std::make_shared<asio::ip::basic_resolver<Tcp, Executor>>(executor);
  resolver->async_resolve(endpoint.host, std::to_string(endpoint.port),
                          [resolver, pool = weak_from_this()](const ErrorCode& failed,
                                                              const Tcp::resolver::results_type& results) {
                            const std::shared_ptr<ClientPool> owner = pool.lock();
                            if (!owner) return;
                            owner->looks_up_ = false;
                            std::vector<Tcp::endpoint> found;
                            for (const auto& entry : results) {
                              if (!failed && found.size() < KnownAddresses::kMax)
                                found.push_back(entry.endpoint());
                            }
                            owner->learn_addresses(found);
                          });
}

// A failed lookup (no addresses) changes nothing.
void ClientPool::learn_addresses(const std::vector<Tcp::endpoint>& addresses) {
  if (addresses.empty()) return;
  addresses_.learn(addresses);
  const auto gone =
      std::stable_partition(idle_.begin(), idle_.end(),
                            [this](const std::shared_ptr<Channel>& idle) { return has_address(*idle); });
  const std::vector<std::shared_ptr<Channel>> ended(gone, idle_.end());
  idle_.erase(gone, idle_.end());
  for (const std::shared_ptr<Channel>& channel : ended) end(*channel);
}

bool ClientPool::has_address(Channel& channel) const {
  if (addresses_.empty()) return true;
  ErrorCode error;
  const Tcp::endpoint there = channel.socket().remote_endpoint(error);
  return !error && addresses_.has(there);
}

Task<StatusOr<std::vector<Tcp::endpoint>>> ClientPool::resolve(TimePoint until) {
  std::vector<Tcp::endpoint> addresses;
  ErrorCode error;
  const auto numeric = asio::ip::make_address(endpoint.host, error);
  if (!error) {
    addresses.emplace_back(numeric, endpoint.port);
    co_return addresses;
  }
  if (options.lookup) co_return allowed(looked_up());
  const NameLookup lookup = co_await look_up(executor, endpoint.host, until, kAddressesMax);
  if (lookup.error == asio::error::timed_out)
    co_return failure(absl::StatusCode::kUnavailable, SendPhase::kConnect, "name lookup took too long");
  if (lookup.error) co_return connect_failure(lookup.error, absl::StatusCode::kUnavailable);
  for (const std::string& address : lookup.addresses)
    addresses.emplace_back(asio::ip::make_address(address), endpoint.port);
  co_return allowed(std::move(addresses));
}

// Leaves a name's addresses that may be asked.
StatusOr<std::vector<Tcp::endpoint>> ClientPool::allowed(std::vector<Tcp::endpoint> found) const {
  if (!options.refuses_link_local) return found;
  const size_t refused = std::erase_if(found, [](const Tcp::endpoint& one) {
    return host_scope(one.address().to_string()) == HostScope::kLinkLocal;
  });
  if (refused == 0 || !found.empty()) return found;
  return failure(absl::StatusCode::kUnavailable, SendPhase::kConnect,
                 "the name leads to an address of the link or of a metadata service, which is not asked");
}

Task<Status> ClientPool::secure(std::shared_ptr<Channel> channel, absl::StatusCode code_when_late) {
  if (!options.tls || !options.tls->context)
    co_return failure(absl::StatusCode::kUnavailable, SendPhase::kConnect, "TLS: nothing is set up for it");
  const TlsContext& context = *options.tls->context;
  channel->secure(TlsSession::connect(context, channel->socket().native_handle(), endpoint.host));
  const ErrorCode error = co_await channel->handshake();
  if (!error) co_return absl::OkStatus();
  const bool late = error == asio::error::timed_out;
  const std::string why = late ? "the handshake took too long" : channel->tls()->failure();
  co_return failure(late ? code_when_late : absl::StatusCode::kUnavailable, SendPhase::kConnect,
                    "TLS: " + why);
}

Task<StatusOr<std::shared_ptr<Channel>>> ClientPool::connect(TimePoint deadline) {
  const TimePoint begun = std::chrono::steady_clock::now();
  auto channel = co_await resolve_and_connect(deadline);
  if (options.on_connect) options.on_connect(std::chrono::steady_clock::now() - begun, channel.ok());
  co_return channel;
}

Task<StatusOr<std::shared_ptr<Channel>>> ClientPool::resolve_and_connect(TimePoint deadline) {
  const TimePoint until = std::min(deadline, std::chrono::steady_clock::now() + options.connect_timeout);
  const std::weak_ptr<ClientPool> pool = weak_from_this();
  const auto addresses = co_await resolve(until);
  if (!addresses.ok()) co_return addresses.status();
  if (!addresses_.empty()) addresses_.add(*addresses);
  Status last = failure(absl::StatusCode::kUnavailable, SendPhase::kConnect, "the name has no address");
  bool peer_tried = false;
  for (const Tcp::endpoint& address : *addresses) {
    const auto channel = std::make_shared<Channel>(Socket(executor), kBufferBytes);
    CloseUnlessHandedOn guard{channel};
    channel->set_deadline(until);
    ++stats.connects;
    const absl::StatusCode code_when_late =
        until == deadline ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kUnavailable;
    const ErrorCode error = co_await channel->connect(address);
    if (!error && endpoint.tls) {
      peer_tried = true;
      last = co_await secure(channel, code_when_late);
      if (!last.ok()) continue;
    }
    if (!error) {
      channel->set_deadline(deadline);
      channel->on_unwatched = [pool, raw = channel.get()] {
        if (const auto owner = pool.lock()) owner->on_idle_event(raw);
      };
      guard.channel.reset();
      co_return channel;
    }
    // A machine without IPv6 has no address for ::1; the answer of 127.0.0.1 is reported then.
    if (peer_tried && error == boost::system::errc::address_not_available) continue;
    peer_tried = peer_tried || local_remedy(error).empty();
    const bool late = error == asio::error::timed_out;
    last = connect_failure(error, late ? code_when_late : absl::StatusCode::kUnavailable);
  }
  co_return last;
}

}  // namespace troupe
