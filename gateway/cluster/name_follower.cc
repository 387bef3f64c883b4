#include "gateway/cluster/name_follower.h"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

constexpr Duration kRetryFirst = std::chrono::seconds(1), kRetryMax = std::chrono::seconds(30);
constexpr Duration kLookupMax = std::chrono::seconds(10);
// More than are followed, to know how many are not.
constexpr size_t kAddressesRead = 4 * route::NameAddresses::kMax;

}  // namespace

NameFollower::NameFollower(Executor executor, Fleet& fleet, const Logger& log,
                           const std::vector<Upstream>& names, const HttpClientOptions& client)
    : executor_(executor), fleet_(fleet), log_(log), client_(client), timer_(executor) {
  for (const Upstream& upstream : names) names_.push_back({upstream, {}});
  if (!names_.empty()) fleet_.initial_probing().await_names();
}

void NameFollower::start(TaskGroup& group) {
  group.spawn(follow());
}

Task<void> NameFollower::follow() {
  const Duration interval = client_.resolve_interval;
  Duration retry = kRetryFirst;
  while (true) {
    co_await look_up_all();
    fleet_.initial_probing().names_known();
    const bool lacks = std::any_of(names_.begin(), names_.end(),
                                   [](const Name& name) { return name.addresses.known().empty(); });
    Duration rest = interval > Duration::zero() ? interval : std::chrono::hours(24 * 365);
    if (lacks) rest = std::min(rest, retry);
    retry = lacks ? std::min(2 * retry, kRetryMax) : kRetryFirst;
    co_await timer_.rest(Duration::zero(), rest);
  }
}

// (A change() may come while a name is looked up.)
Task<void> NameFollower::look_up_all() {
  std::vector<std::string> ids;
  for (const Name& name : names_) {
    const bool settled = client_.resolve_interval <= Duration::zero() && !name.addresses.known().empty();
    if (!settled) ids.push_back(name.upstream.id());
  }
  for (const std::string& id : ids) {
    const Name* const asked = find(id);
    if (asked == nullptr) continue;
    Upstream upstream = asked->upstream;
    const std::vector<std::string> addresses = co_await addresses_of(std::move(upstream));
    if (Name* const name = find(id)) take(*name, addresses);
  }
}

Task<std::vector<std::string>> NameFollower::addresses_of(Upstream upstream) {
  std::vector<std::string> addresses;
  const Endpoint& endpoint = upstream.endpoint;
  if (client_.lookup) {
    for (const auto& [address, port] : client_.lookup(endpoint.host, endpoint.port))
      addresses.push_back(address);
    co_return addresses;
  }
  const TimePoint until = std::chrono::steady_clock::now() + kLookupMax;
  const NameLookup found = co_await look_up(executor_, endpoint.host, until, kAddressesRead);
  if (found.error) log_.warn("name_not_found", {{"name", endpoint.host}, {"why", found.error.message()}});
  co_return found.addresses;
}

NameFollower::Name* NameFollower::find(const std::string& id) {
  const auto found = std::find_if(names_.begin(), names_.end(),
                                  [&id](const Name& name) { return name.upstream.id() == id; });
  return found == names_.end() ? nullptr : &*found;
}

void NameFollower::take(Name& name, const std::vector<std::string>& addresses) {
  const route::NameAddresses::Change change = name.addresses.found(addresses);
  for (const std::string& address : change.left) leave(name, address);
  for (const std::string& address : change.joined) {
    if (!join(name, address, /*comes_back=*/true)) name.addresses.forget(address);  // tried again later
  }
  if (change.left_out > 0 && !(change.joined.empty() && change.left.empty()))
    log_.warn("addresses_left_out", {{"name", name.upstream.endpoint.host}, {"addresses", change.left_out}});
}

bool NameFollower::join(const Name& name, const std::string& address, bool comes_back) {
  const auto added = fleet_.add(name.upstream.at(address), comes_back);
  if (!added.ok())
    log_.error("worker_not_added",
               {{"worker", name.upstream.at(address).id()}, {"why", to_std(added.status().message())}});
  return added.ok();
}

// (An operator may have removed it.)
void NameFollower::leave(const Name& name, const std::string& address) {
  if (const auto node = fleet_.find(name.upstream.at(address).id())) fleet_.drain(*node, true);
}

void NameFollower::change(const std::vector<Upstream>& names) {
  std::vector<Name> next;
  for (const Upstream& upstream : names) {
    Name* const known = find(upstream.id());
    if (known == nullptr) {
      next.push_back({upstream, {}});
      continue;
    }
    Name kept = *known;
    const bool same = kept.upstream.same_as(upstream);
    if (same && upstream.tls != nullptr && kept.upstream.tls != nullptr) {
      kept.upstream.tls->context =
          upstream.tls->context;  // its workers' own: the files may have been renewed
    } else if (!same) {
      kept.upstream = upstream;
      for (const std::string& address : kept.addresses.known()) {
        if (fleet_.find(upstream.at(address).id())) join(kept, address, /*comes_back=*/false);
      }
    }
    next.push_back(std::move(kept));
  }
  const std::vector<Name> before = std::exchange(names_, std::move(next));
  for (const Name& name : before) {
    if (find(name.upstream.id()) != nullptr) continue;
    for (const std::string& address : name.addresses.known()) leave(name, address);
  }
  timer_.wake();
}

}  // namespace troupe
