#include "worker/http/prefixes.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>
#include <vector>

namespace troupe {

namespace {

TimePoint now() {
  return std::chrono::steady_clock::now();
}

int64_t seconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
}

ApiError begin_error(const Status& status) {
  if (absl::IsResourceExhausted(status)) return ApiError::overloaded(to_std(status.message()), 1);
  ApiError error = ApiError::bad_field("pin", to_std(status.message()));
  error.http_status = 409;
  error.code = "pin_budget_exceeded";
  return error;
}

}  // namespace

Prefixes::Prefixes(Executor executor, const PrefixRegistry::Options& options, std::string model,
                   Engine& engine)
    : book_(options),
      model_(std::move(model)),
      engine_(engine),
      started_at_(now()),
      started_s_(std::time(nullptr)),
      timer_(executor) {}

ApiResult<std::unique_ptr<Prefixes::Making>> Prefixes::begin(const PrefixRegistry::Ask& ask,
                                                             std::string_view owner) {
  expire();
  if (const Status status = book_.begin(ask); !status.ok()) return begin_error(status);
  return std::make_unique<Making>(*this, ask, owner);
}

Prefixes::Making::~Making() {
  if (!finished_ && prefixes_.book_.abort(ask_)) prefixes_.engine_.unpin(ask_.hash);
}

std::string Prefixes::Making::finish(int64_t cached_tokens) {
  finished_ = true;
  if (prefixes_.book_.finish(ask_, cached_tokens, now())) prefixes_.engine_.unpin(ask_.hash);
  if (ask_.pin) {
    prefixes_.owners_.add(ask_.hash, owner_);
  } else {
    prefixes_.owners_.made(ask_.hash, owner_);  // the last request has unpinned it, for all
  }
  prefixes_.wait_for_expiry();
  return prefix_json(prefixes_.state_of(*prefixes_.book_.find(ask_.hash)));
}

PrefixState Prefixes::state_of(const PrefixRegistry::Entry& entry) const {
  PrefixState state;
  state.hash = entry.ask.hash;
  state.model = model_;
  state.set = entry.ask.set;
  state.tokens = entry.ask.tokens;
  state.cached_tokens = entry.cached_tokens;
  state.pinned = entry.ask.pin && engine_.is_pinned(entry.ask.hash);
  state.created_s = started_s_ + seconds(entry.made_at - started_at_);
  if (!entry.ask.ttl) return state;
  state.ttl_s = seconds(*entry.ask.ttl);
  state.expires_s = state.created_s + *state.ttl_s;
  return state;
}

Task<void> Prefixes::list(HttpCall& call) {
  expire();
  std::vector<PrefixState> states;
  for (const PrefixRegistry::Entry* entry : book_.all()) {
    PrefixState& state = states.emplace_back(state_of(*entry));
    state.owners = owners_.of(state.hash);
    if (entry->expires) state.left_s = std::max<int64_t>(seconds(*entry->expires - now()), 1);
  }
  const bool with_owners = call.request().header(kOwnersAskedHeader) == "1";
  return call.answer_json(
      200, prefix_list_json({states, book_.pinned_tokens(), book_.options().pinned_tokens_max, with_owners}));
}

Task<void> Prefixes::one(HttpCall& call) {
  expire();
  const std::string id(prefix_id_of(call.request().path));
  const auto hash = parse_prefix_id(id);
  const PrefixRegistry::Entry* entry = hash ? book_.find(*hash) : nullptr;
  const std::string_view owner = call.request().header(kOwnerHeader);
  if (entry == nullptr || !owners_.may_see(*hash, owner))
    return call.fail(unknown_prefix(id, "see GET /v1/prefixes"));
  if (call.request().method != "DELETE") return call.answer_json(200, prefix_json(state_of(*entry)));
  if (owner.empty()) owners_.forget(*hash);
  remove_for(owner, *entry);
  wait_for_expiry();
  return call.answer_json(200, prefix_deleted_json(id));
}

// It stays for others who have it pinned or had it computed. A pin without an owner is the operator's.
void Prefixes::remove_for(std::string_view owner, const PrefixRegistry::Entry& entry) {
  const Hash128 hash = entry.ask.hash;
  const bool is_operators = !owner.empty() && entry.is_pinned() && owners_.of(hash).empty();
  const PinOwners::Left left = owners_.remove(hash, owner);
  if (is_operators || left == PinOwners::Left::kPinned) return;
  const bool unpins = left == PinOwners::Left::kMade ? book_.unpin(hash)
                                                     : book_.erase(hash) == PrefixRegistry::Erased::kUnpin;
  if (unpins) engine_.unpin(hash);
}

void Prefixes::expire() {
  book_.drop_lost([this](Hash128 hash) { return engine_.is_pinned(hash); });
  for (const Hash128& hash : book_.take_expired(now())) engine_.unpin(hash);
  owners_.keep_only([this](const Hash128& hash) {
    const PrefixRegistry::Entry* const entry = book_.find(hash);
    if (entry == nullptr) return PinOwners::State::kGone;
    return entry->is_pinned() ? PinOwners::State::kPinned : PinOwners::State::kMade;
  });
}

void Prefixes::wait_for_expiry() {
  const auto next = book_.next_expiry();
  if (!next || closed_) {
    timer_.cancel();
    return;
  }
  timer_.expires_at(*next);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    expire();
    wait_for_expiry();
  });
}

void Prefixes::close() {
  closed_ = true;
  timer_.cancel();
}

}  // namespace troupe
