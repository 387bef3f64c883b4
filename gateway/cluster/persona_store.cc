#include "gateway/cluster/persona_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/etcd/keys.h"
#include "common/net/timer.h"
#include "gateway/persona/record.h"

namespace troupe {

using etcd::KeyRange;
using etcd::KeyValue;
using etcd::Txn;

namespace {

constexpr Duration kRetry = std::chrono::milliseconds(500);
constexpr size_t kFetchAtOnce = 8;            // values: an answer holds 32 MiB
constexpr std::string_view kEverybody = "-";  // the owner "", in keys

}  // namespace

PersonaStore::PersonaStore(const EtcdOptions& etcd, const std::string& prefix, const Parts& parts)
    : keys_(StateKeys(prefix).personas),
      parts_(parts),
      etcd_(parts.executor, etcd, parts.clock),
      failed_(parts.metrics.counter("troupe_gateway_persona_store_failures_total",
                                    "Reads and writes of personas in etcd that failed.")) {}

void PersonaStore::start(TaskGroup& group) {
  group.spawn(follow());
}

std::string PersonaStore::key_of(std::string_view owner, std::string_view name) const {
  return absl::StrCat(keys_, to_absl(owner.empty() ? kEverybody : owner), "/", to_absl(name));
}

std::optional<PersonaRegistry::Key> PersonaStore::parts_of(std::string_view key) const {
  if (!key.starts_with(keys_)) return std::nullopt;
  key.remove_prefix(keys_.size());
  const size_t slash = key.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string_view owner = key.substr(0, slash);
  return PersonaRegistry::Key(owner == kEverybody ? "" : owner, key.substr(slash + 1));
}

Task<void> PersonaStore::follow() {
  Timer timer(parts_.executor);
  while (true) {
    const Status ended = co_await read_and_watch();
    if (ended.ok()) continue;
    failed_.Increment();
    if (!std::exchange(fails_, true)) {
      const std::string why(to_std(ended.message()));
      parts_.log.warn("personas_not_shared", {{"why", why}});
    }
    timer.expires_after(kRetry);
    co_await timer.async_wait(use_task);
  }
}

// Runs until the watch ends. OK: it fell silent, as where nothing changes; it may be half open, so all is
// looked at again.
Task<Status> PersonaStore::read_and_watch() {
  Txn txn;
  txn.reads = {KeyRange::prefix(keys_)};
  txn.reads.front().keys_only = true;
  const auto all = co_await etcd_.txn(txn);
  if (!all.ok()) co_return all.status();
  std::vector<std::string> changed, gone;
  absl::flat_hash_map<std::string, int64_t> there;
  for (const KeyValue& kv : all->found) {
    there[kv.key] = kv.mod_revision;
    const auto known = revisions_.find(kv.key);
    if (known == revisions_.end() || known->second != kv.mod_revision) changed.push_back(kv.key);
  }
  for (const auto& [key, revision] : revisions_) {
    if (!there.contains(key) && revision <= all->revision) gone.push_back(key);
  }
  for (const std::string& key : gone) forget(key);
  const Status fetched = co_await fetch(std::move(changed));
  if (!fetched.ok()) co_return fetched;
  txn.reads.front().keys_only = false;
  const auto watch = co_await etcd_.watch(txn.reads, all->revision + 1);
  if (!watch.ok()) co_return watch.status();
  if (std::exchange(fails_, false))
    parts_.log.info("personas_shared", {{"personas", parts_.registry.size()}});
  while (true) {
    const auto news = co_await (*watch)->next();
    if (absl::IsAborted(news.status())) co_return absl::OkStatus();
    if (!news.ok()) co_return news.status();
    if (news->canceled) co_return absl::UnavailableError("etcd: the watch was canceled");
    for (const etcd::WatchEvent& event : news->events) take(event.kv, event.deleted);
  }
}

Task<Status> PersonaStore::fetch(std::vector<std::string> keys) {
  for (size_t begin = 0; begin < keys.size(); begin += kFetchAtOnce) {
    Txn txn;
    for (size_t i = begin; i < std::min(keys.size(), begin + kFetchAtOnce); ++i)
      txn.reads.push_back(KeyRange::key(keys[i]));
    const auto some = co_await etcd_.txn(txn);
    if (!some.ok()) co_return some.status();
    for (const KeyValue& kv : some->found) take(kv, false);
  }
  co_return absl::OkStatus();
}

void PersonaStore::forget(const std::string& key) {
  revisions_.erase(key);
  const auto parts = parts_of(key);
  const Persona* known = parts ? parts_.registry.at(*parts) : nullptr;
  if (known != nullptr && !known->from_folder) parts_.registry.erase(parts->first, parts->second);
}

// News that is older than what is known is none.
void PersonaStore::take(const KeyValue& kv, bool deleted) {
  const auto parts = parts_of(kv.key);
  const auto known = revisions_.find(kv.key);
  if (!parts || (known != revisions_.end() && known->second >= kv.mod_revision)) return;
  if (deleted) return forget(kv.key);
  revisions_[kv.key] = kv.mod_revision;
  auto persona = parse_persona_record(kv.value);
  if (!persona.ok() || persona->owner != parts->first || persona->name != parts->second) {
    const std::string why = persona.ok() ? "its key is another's" : std::string(persona.status().message());
    parts_.log.warn("persona_malformed", {{"key", kv.key}, {"why", why}});
    return;
  }
  const Persona* here = parts_.registry.at(*parts);
  if (here == nullptr || !here->from_folder) parts_.registry.adopt(*std::move(persona));
}

Task<Status> PersonaStore::keep(Persona persona) {
  const std::string key = key_of(persona.owner, persona.name);
  const auto known = revisions_.find(key);
  Txn txn;
  const int64_t revision = known == revisions_.end() ? 0 : known->second;
  txn.compares = {{key, Txn::Compare::Of::kModRevision, revision}};
  txn.else_reads = {KeyRange::key(key)};
  if (persona.versions.empty()) {
    txn.deletes = {key};
  } else {
    txn.puts = {{key, persona_record_json(persona), 0}};
  }
  const auto answer = co_await etcd_.txn(txn);
  if (!answer.ok()) {
    failed_.Increment();
    co_return answer.status();
  }
  if (!answer->succeeded) {
    if (answer->found.empty()) forget(key);
    for (const KeyValue& kv : answer->found) take(kv, false);
    co_return absl::AbortedError("another gateway was first");
  }
  if (persona.versions.empty()) {
    revisions_.erase(key);
  } else {
    revisions_[key] = answer->revision;
  }
  PersonaMemory::take(parts_.registry, std::move(persona));
  co_return absl::OkStatus();
}

}  // namespace troupe
