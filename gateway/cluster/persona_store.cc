#include "gateway/cluster/persona_store.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/etcd/keys.h"
#include "gateway/persona/record.h"

namespace troupe {

using etcd::KeyRange;
using etcd::KeyValue;
using etcd::Txn;

namespace {

constexpr std::string_view kShared = "-";  // the owner "", in keys

}  // namespace

PersonaStore::PersonaStore(const EtcdOptions& etcd, const std::string& prefix, const Parts& parts)
    : keys_(StateKeys(prefix).personas),
      parts_(parts),
      etcd_(parts.executor, etcd, parts.clock),
      follower_(parts.executor, etcd_, keys_, *this),
      failed_(parts.metrics.counter("troupe_gateway_persona_store_failures_total",
                                    "Reads and writes of personas in etcd that failed.")) {}

void PersonaStore::start(TaskGroup& group) {
  group.spawn(follower_.run());
}

std::string PersonaStore::key_of(std::string_view owner, std::string_view name) const {
  return absl::StrCat(keys_, to_absl(owner.empty() ? kShared : owner), "/", to_absl(name));
}

std::optional<PersonaRegistry::Key> PersonaStore::parts_of(std::string_view key) const {
  if (!key.starts_with(keys_)) return std::nullopt;
  key.remove_prefix(keys_.size());
  const size_t slash = key.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string_view owner = key.substr(0, slash);
  return PersonaRegistry::Key(owner == kShared ? "" : owner, key.substr(slash + 1));
}

// Logged once until it goes well again.
void PersonaStore::failed(const Status& why) {
  failed_.Increment();
  if (std::exchange(fails_, true)) return;
  const std::string text(to_std(why.message()));
  parts_.log.warn("personas_not_shared", {{"why", text}});
}

void PersonaStore::went_well() {
  if (std::exchange(fails_, false))
    parts_.log.info("personas_shared", {{"personas", parts_.registry.size()}});
}

std::vector<std::string> PersonaStore::reconcile(const etcd::TxnAnswer& all) {
  std::vector<std::string> changed, gone;
  absl::flat_hash_set<std::string_view> there;
  for (const KeyValue& kv : all.found) {
    there.insert(kv.key);
    const auto known = revisions_.find(kv.key);
    if (known == revisions_.end() || known->second != kv.mod_revision) changed.push_back(kv.key);
  }
  for (const auto& [key, revision] : revisions_) {
    if (!there.contains(key) && revision <= all.revision) gone.push_back(key);
  }
  for (const std::string& key : gone) forget(key);
  return changed;
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
