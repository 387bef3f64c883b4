// An idle connection keeps a read outstanding (Channel::watch), so its end is seen when it comes and not at
// its next use; what is left is the race with a peer that closes just then, which HttpClient::send repairs.

#include "common/net/client_pool.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace troupe {
namespace {

constexpr size_t kBufferBytes = 64u << 10;
constexpr size_t kAddressesMax = 8;
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

// The result of getaddrinfo, which runs in Asio's thread and cannot be interrupted: its memory is separate,
// because the waiting coroutine may be gone.
struct Lookup {
  explicit Lookup(Executor executor) : resolver(executor), done(executor) {}
  asio::ip::basic_resolver<Tcp, Executor> resolver;
  Timer done;
  bool finished = false;
  ErrorCode error;
  std::vector<Tcp::endpoint> found;
};

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
  channel.tell_end();
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

struct LookupDone {
  std::shared_ptr<Lookup> lookup;

  void operator()(const ErrorCode& error, const Tcp::resolver::results_type& results) const {
    lookup->finished = true;
    lookup->error = error;
    for (const auto& entry : results) {
      if (lookup->found.size() < kAddressesMax) lookup->found.push_back(entry.endpoint());
    }
    lookup->done.cancel();
  }
};

}  // namespace

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
  const bool usable = !channel->ended() && channel->input().empty();
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

Task<StatusOr<std::vector<Tcp::endpoint>>> ClientPool::resolve(TimePoint until) {
  std::vector<Tcp::endpoint> addresses;
  ErrorCode error;
  const auto numeric = asio::ip::make_address(endpoint.host, error);
  if (!error) {
    addresses.emplace_back(numeric, endpoint.port);
    co_return addresses;
  }
  const auto lookup = std::make_shared<Lookup>(executor);
  lookup->done.expires_at(until);
  lookup->resolver.async_resolve(endpoint.host, std::to_string(endpoint.port), LookupDone{lookup});
  bool cancelled = false;
  try {
    co_await lookup->done.async_wait(use_task);
  } catch (const boost::system::system_error&) {
    cancelled = !lookup->finished;  // LookupDone cancels the timer, too
  }
  if (cancelled) throw boost::system::system_error(asio::error::operation_aborted);
  if (!lookup->finished) {
    co_return failure(absl::StatusCode::kUnavailable, SendPhase::kConnect, "name lookup took too long");
  }
  if (lookup->error) co_return connect_failure(lookup->error, absl::StatusCode::kUnavailable);
  co_return lookup->found;
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
  auto channel = co_await connect_untold(deadline);
  if (options.on_connect) options.on_connect(std::chrono::steady_clock::now() - begun, channel.ok());
  co_return channel;
}

Task<StatusOr<std::shared_ptr<Channel>>> ClientPool::connect_untold(TimePoint deadline) {
  const TimePoint until = std::min(deadline, std::chrono::steady_clock::now() + options.connect_timeout);
  const std::weak_ptr<ClientPool> pool = weak_from_this();
  const auto addresses = co_await resolve(until);
  if (!addresses.ok()) co_return addresses.status();
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
