#include <boost/asio/ip/tcp.hpp>
#include <boost/system/system_error.hpp>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "common/core/host_scope.h"
#include "common/net/http_client.h"
#include "common/net/http_head.h"
#include "common/net/timer.h"

namespace troupe {
namespace {

Status bad_url(std::string_view url, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("'", to_absl(url), "': ", to_absl(why)));
}

bool is_host_name(std::string_view host) {
  constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:";
  return !host.empty() && host.find_first_not_of(allowed) == std::string_view::npos;
}

using Tcp = asio::ip::tcp;

// The memory is separate because the waiting coroutine may be gone when the result comes.
struct Lookup {
  explicit Lookup(Executor executor) : resolver(executor), done(executor) {}
  asio::ip::basic_resolver<Tcp, Executor> resolver;
  Timer done;
  bool finished = false;
  NameLookup result;
};

struct LookupDone {
  std::shared_ptr<Lookup> lookup;
  size_t addresses_max = 0;

  void operator()(const boost::system::error_code& error, const Tcp::resolver::results_type& found) const {
    lookup->finished = true;
    lookup->result.error = error;
    for (const auto& entry : found) {
      if (lookup->result.addresses.size() < addresses_max)
        lookup->result.addresses.push_back(entry.endpoint().address().to_string());
    }
    lookup->done.cancel();
  }
};

}  // namespace

Task<NameLookup> look_up(Executor executor, std::string host, TimePoint until, size_t addresses_max) {
  const auto lookup = std::make_shared<Lookup>(executor);
  lookup->done.expires_at(until);
  LookupDone done{lookup, addresses_max};
  lookup->resolver.async_resolve(host, "", std::move(done));
  bool cancelled = false;
  try {
    co_await lookup->done.async_wait(use_task);
  } catch (const boost::system::system_error&) {
    cancelled = !lookup->finished;  // LookupDone cancels the timer, too
  }
  if (cancelled) throw boost::system::system_error(asio::error::operation_aborted);
  if (!lookup->finished) lookup->result.error = asio::error::timed_out;
  co_return lookup->result;
}

StatusOr<Endpoint> Endpoint::parse(std::string_view url) {
  Endpoint endpoint;
  std::string_view rest = url;
  const size_t scheme_end = rest.find("://");
  if (scheme_end != std::string_view::npos) {
    const std::string_view scheme = rest.substr(0, scheme_end);
    endpoint.tls = equals_ignore_case(scheme, "https");
    if (!endpoint.tls && !equals_ignore_case(scheme, "http"))
      return bad_url(url, "the scheme must be http or https");
    if (endpoint.tls) endpoint.port = 443;
    rest.remove_prefix(scheme_end + 3);
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos)
    return bad_url(rest.substr(at + 1), "credentials (user:password@) are not taken here");
  if (const size_t path = rest.find_first_of("/?#"); path != std::string_view::npos)
    return bad_url(url, absl::StrCat("expected http://host:port or https://host:port, without '",
                                     to_absl(rest.substr(path)), "'"));
  std::string_view port;
  if (rest.starts_with('[')) {
    const size_t close = rest.find(']');
    if (close == std::string_view::npos) return bad_url(url, "'[' without ']'");
    endpoint.host = rest.substr(1, close - 1);
    rest.remove_prefix(close + 1);
    if (!rest.empty() && rest.front() != ':') return bad_url(url, "expected ':port' after ']'");
    port = rest.empty() ? rest : rest.substr(1);
    if (!rest.empty() && port.empty()) return bad_url(url, "the port must be 1 to 65535");
  } else {
    const size_t colon = rest.find(':');
    endpoint.host = rest.substr(0, colon);
    if (colon != std::string_view::npos) {
      port = rest.substr(colon + 1);
      if (port.empty()) return bad_url(url, "the port must be 1 to 65535");
    }
  }
  if (!is_host_name(endpoint.host))
    return bad_url(url, absl::StrCat("expected http://host:port or https://host:port; '", endpoint.host,
                                     "' is no host"));
  endpoint.host = canonical_host(endpoint.host);
  if (port.empty() && scheme_end == std::string_view::npos)  // could be a typo as well as a host
    return bad_url(url, "expected http://host:port, https://host:port or host:port");
  if (port.empty()) return endpoint;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (error != std::errc() || end != port.data() + port.size() || endpoint.port == 0) {
    return bad_url(url, "the port must be 1 to 65535");
  }
  return endpoint;
}

std::string Endpoint::authority() const {
  const bool bracketed = host.find(':') != std::string::npos;
  return absl::StrCat(bracketed ? "[" : "", host, bracketed ? "]" : "", ":", port);
}

std::string Endpoint::url() const {
  return absl::StrCat(tls ? "https://" : "http://", authority());
}

}  // namespace troupe
