#include "worker/text/tokenizer/token_cache.h"

namespace troupe {

bool TokenCache::append(const Key& key, std::vector<int32_t>& ids) {
  const MutexLock lock(mutex_);
  ++stats_.lookups;
  const auto it = index_.find(key);
  if (it == index_.end()) return false;
  ++stats_.hits;
  entries_.splice(entries_.begin(), entries_, it->second);
  const std::vector<int32_t>& known = it->second->ids;
  ids.insert(ids.end(), known.begin(), known.end());
  return true;
}

void TokenCache::put(const Key& key, std::vector<int32_t> ids) {
  constexpr size_t kBookkeeping = sizeof(Entry) + 4 * sizeof(void*) + sizeof(Key);
  const size_t bytes = key.text.size() + ids.size() * sizeof(int32_t) + kBookkeeping;
  if (bytes > options_.entry_bytes_max || bytes > options_.bytes_max) return;
  ids.shrink_to_fit();
  const MutexLock lock(mutex_);
  if (index_.contains(key)) return;  // another thread was faster
  Entry& entry = entries_.emplace_front();
  entry.text = key.text;
  entry.ids = std::move(ids);
  entry.key = key;
  entry.key.text = entry.text;
  entry.bytes = bytes;
  index_.emplace(entry.key, entries_.begin());
  stats_.bytes += bytes;
  while (stats_.bytes > options_.bytes_max) {
    const Entry& oldest = entries_.back();
    stats_.bytes -= oldest.bytes;
    index_.erase(oldest.key);
    entries_.pop_back();
  }
}

TokenCache::Stats TokenCache::stats() const {
  const MutexLock lock(mutex_);
  return stats_;
}

}  // namespace troupe
