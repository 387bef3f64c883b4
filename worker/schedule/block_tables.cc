// A request is given the blocks of all its known ids at once, so a prefill never runs out half way and only
// decodes can. The full blocks of its prompt are in the prefix cache from the step that completed them, those
// of its answer when it ends or gives way: no request can ask for them before. They are named by the hash of
// everything up to them: preemption, the next turn and other requests all find them by the same look-up. The
// block that a request did not fill stays too when the request ends; one that shares its first tokens goes on
// in a copy of it, so that what is cached is never written to.

#include "worker/schedule/block_tables.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "common/core/check.h"

namespace troupe {

namespace {

constexpr int32_t kEvictedAhead = 1024;  // one in so many of the cache's blocks is evicted ahead of need
constexpr int32_t kAnswerRoom = 16;      // blocks that a table can grow by without moving

int32_t count_of(size_t size) {
  return static_cast<int32_t>(size);
}

std::span<const TokenId> ids_of(const ScheduledRequest& request, size_t begin, size_t count) {
  if (request.ids.empty()) return {};
  return std::span<const TokenId>(request.ids).subspan(begin, count);
}

// Leading blocks that it may take from the cache. The last id is always computed: its logits are needed.
size_t lookup_limit(const ScheduledRequest& request, int32_t block_size) {
  if (request.scores_prompt) return 0;
  return std::min(static_cast<size_t>((request.known_count - 1) / block_size), request.block_hashes.size());
}

}  // namespace

BlockTables::BlockTables(const Options& options)
    : options_(options),
      pool_(options.block_count),
      residency_(options.block_size, options.block_count),
      cache_(&pool_, options.block_size, &residency_) {}

int32_t BlockTables::blocks_for(int32_t token_count) const {
  return (token_count + options_.block_size - 1) / options_.block_size;
}

void BlockTables::extend_hashes(ScheduledRequest& request) const {
  if (!options_.enable_prefix_caching) return;
  const size_t block_size = static_cast<size_t>(options_.block_size);
  std::vector<Hash128>& hashes = request.block_hashes;
  if (request.ids.empty()) {
    // An answer without ids in the trace: its blocks are named after the request, so no other finds them.
    for (uint64_t i = hashes.size(); (i + 1) * block_size <= static_cast<size_t>(request.known_count); ++i) {
      hashes.push_back(chain_hash(Hash128{request.id, i}, std::string_view("answer")));
    }
    return;
  }
  const size_t known_count = request.ids.size() - (request.sampled_index >= 0 ? 1 : 0);
  while ((hashes.size() + 1) * block_size <= known_count) {
    const Hash128 parent = hashes.empty() ? request.spec.salt : hashes.back();
    const std::span<const TokenId> ids(request.ids);
    hashes.push_back(chain_hash(parent, ids.subspan(hashes.size() * block_size, block_size)));
  }
}

// An admitted request changes the residency of its set, and soon that of its session.
void BlockTables::lookup(ScheduledRequest& request) const {
  residency_.prefetch(HolderKind::kSet, request.spec.set);
  residency_.prefetch(HolderKind::kSession, request.spec.session);
  find_match(request);
}

PrefixCache::Match BlockTables::find_match(ScheduledRequest& request) const {
  const size_t block_size = static_cast<size_t>(options_.block_size);
  const std::span<const Hash128> hashes(request.block_hashes);
  const size_t limit = lookup_limit(request, options_.block_size);
  const PrefixCache::Match match = cache_.find(hashes.first(limit));
  request.lookup_found_count = match.count;
  const auto found = static_cast<size_t>(match.count);
  request.lookup_awaits = found < limit && cache_.is_announced_by_other(hashes[found], request.id) &&
                          !request.partner_announces(hashes[found]);
  request.lookup_partial = {};
  if (options_.enable_prefix_caching && !request.scores_prompt && !request.ids.empty()) {
    const std::span<const TokenId> ids(request.ids);
    const size_t rest = std::min(ids.size() - 1 - found * block_size, block_size);
    request.lookup_partial = cache_.find_partial(
        match, request.spec.salt, ids.subspan(found * block_size, rest), worth_copying(options_.block_size));
  }
  request.lookup_change_count = cache_.change_count();
  return match;
}

int32_t BlockTables::lookup_cached_count(const ScheduledRequest& request) const {
  return request.lookup_found_count * options_.block_size + request.lookup_partial.count;
}

bool BlockTables::lookup_is_stale(const ScheduledRequest& request) const {
  return request.lookup_change_count != cache_.change_count();
}

bool BlockTables::admit(ScheduledRequest& request, int32_t reserve_count) {
  const int32_t needed = blocks_for(request.known_count);
  // Cheap refusal first. Found blocks may have been evicted since the look, so it errs to the optimistic
  // side.
  if (needed - request.lookup_found_count + reserve_count > available_count()) return false;
  const PrefixCache::Match match = find_match(request);
  if (request.lookup_awaits) return false;
  const int32_t new_count = needed - match.count;
  const int32_t spare_count =
      available_count() - reserve_count - new_count - cache_.unreferenced_count(match);
  if (spare_count < 0) return false;
  // The original must stay until it is copied; where there is no room for both it is done without.
  PartialMatch& partial = request.lookup_partial;
  if (partial.count > 0 && spare_count == 0 && cache_.run_state(partial.run) == PrefixCache::RunState::kIdle)
    partial = {};
  take_blocks(request, match, needed);
  const int32_t named_count = count_of(request.block_hashes.size());
  const bool announces = options_.announces && !request.in_background();
  const int32_t full_count = request.lasting_of(request.known_count) / options_.block_size;
  request.announce_end = announces ? std::min(full_count, named_count) : 0;
  announce_from(request, match.count);
  return true;
}

// Holds the found blocks first, so that they are not evicted for the new ones.
void BlockTables::take_blocks(ScheduledRequest& request, const PrefixCache::Match& match, int32_t count) {
  const int32_t answer = blocks_for(request.max_new_count) + 1;
  request.blocks.reserve(static_cast<size_t>(count + std::min(answer, kAnswerRoom)));
  request.path = cache_.hold(match, request.user, request.blocks);
  const int32_t prefix_blocks = request.spec.prefix_count / options_.block_size;
  if (prefix_blocks > 0) cache_.set_planned(request.path, prefix_blocks, request.spec.planned);
  if (prefix_blocks > 0 && match.count >= prefix_blocks) {
    const auto last = static_cast<size_t>(prefix_blocks - 1);
    residency_.found(request.blocks[last], prefix_blocks - 1, request.spec.set);
  }
  if (request.lookup_partial.count > 0) {
    request.copy_from = request.lookup_partial.block;
    request.copy_run = cache_.hold_partial(request.lookup_partial, request.user);
  }
  make_free(count - match.count);
  pool_.allocate(count - match.count, request.blocks);
  request.cached_count = lookup_cached_count(request);
  request.computed_count = request.cached_count;
}

// Decodes take one block at a time, and each one that goes is published to every gateway. So some go ahead
// of need: a thousandth of the cache costs no hits to speak of, and saves nearly all of those events.
void BlockTables::make_free(int32_t count) {
  const int32_t missing = count - pool_.free_count();
  if (missing > 0) cache_.evict(missing + options_.block_count / kEvictedAhead);
}

// Announces the block at `index`, or the next one that is not cached: other requests that need it wait.
void BlockTables::announce_from(ScheduledRequest& request, int32_t index) {
  const std::span<const Hash128> hashes(request.block_hashes);
  if (request.announced >= 0) cache_.withdraw(hashes[static_cast<size_t>(request.announced)], request.id);
  // Only where the cache was not asked can the block behind those found be cached.
  if (request.scores_prompt && index < request.announce_end) {
    index = std::max(index, cache_.find(hashes.first(static_cast<size_t>(request.announce_end))).count);
  }
  request.announced = index < request.announce_end ? index : -1;
  if (request.announced >= 0) cache_.announce(hashes[static_cast<size_t>(index)], request.id);
}

KvCopy BlockTables::copy_of(const ScheduledRequest& request) const {
  return {request.copy_from, request.blocks[static_cast<size_t>(request.cached_count / options_.block_size)]};
}

void BlockTables::finish_copy(ScheduledRequest& request) {
  if (request.copy_from < 0) return;
  cache_.drop(request.copy_run);
  request.copy_from = request.copy_run = -1;
}

bool BlockTables::grow(ScheduledRequest& request) {
  while (count_of(request.blocks.size()) < blocks_for(request.known_count)) {
    make_free(1);
    if (pool_.free_count() == 0) return false;
    request.blocks.push_back(pool_.allocate());
  }
  return true;
}

bool BlockTables::reserve_block() {
  make_free(1);
  if (pool_.free_count() == 0) return false;
  pool_.reserve(1);
  return true;
}

void BlockTables::materialize(ScheduledRequest& request) {
  pool_.allocate_reserved(blocks_for(request.computed_count) - count_of(request.blocks.size()),
                          request.blocks);
}

void BlockTables::cache_full_blocks(ScheduledRequest& request) {
  if (!options_.enable_prefix_caching) return;
  const int32_t prefix_blocks = request.spec.prefix_count / options_.block_size;
  const int32_t end = request.lasting_of(request.computed_count) / options_.block_size;
  if (request.path.count >= end) return;
  extend_hashes(request);
  // The prefix is one thing, what is behind it another.
  if (request.path.count < prefix_blocks) {
    cache_.insert(request.path, cache_blocks_of(request, static_cast<size_t>(std::min(end, prefix_blocks))));
  }
  if (request.path.count < end) {
    cache_.insert(request.path, cache_blocks_of(request, static_cast<size_t>(end)));
  }
  if (request.announced >= 0 && request.announced < end) announce_from(request, end);
}

// The request's blocks up to the end-th. REQUIRES: all that are new lie before the end of its prefix, or all
// behind it.
PrefixCache::Blocks BlockTables::cache_blocks_of(ScheduledRequest& request, size_t end) const {
  const size_t block_size = static_cast<size_t>(options_.block_size);
  PrefixCache::Blocks blocks;
  blocks.hashes = request.block_hashes;
  blocks.blocks = std::span<BlockId>(request.blocks).first(end);
  blocks.ids = ids_of(request, 0, end * block_size);
  blocks.root = request.spec.salt;
  blocks.user = request.user;
  const bool of_set =
      end * block_size <= static_cast<size_t>(request.spec.prefix_count) && !request.spec.set.is_zero();
  blocks.planned = of_set && request.spec.planned;
  blocks.kind = of_set ? HolderKind::kSet : HolderKind::kSession;
  blocks.holder = of_set ? request.spec.set : request.spec.session;
  blocks.each_itself = blocks.holder.is_zero() && options_.name_blocks;
  return blocks;
}

bool BlockTables::cut(ScheduledRequest& request, int32_t known_count) {
  TROUPE_CHECK(request.announced < 0, "a request that is cut has announced a block");
  request.known_count = known_count;
  if (!request.ids.empty()) request.ids.resize(static_cast<size_t>(known_count));
  const size_t full_count = static_cast<size_t>(known_count / options_.block_size);
  request.block_hashes.resize(std::min(request.block_hashes.size(), full_count));
  request.computed_count = std::min(request.computed_count, known_count - 1);
  const auto needed = static_cast<size_t>(std::max(blocks_for(known_count), request.path.count));
  for (; request.blocks.size() > needed; request.blocks.pop_back()) pool_.release(request.blocks.back());
  return request.computed_count >= std::max(request.cached_count, request.path.count * options_.block_size);
}

void BlockTables::release(ScheduledRequest& request) {
  // Others may now compute the block that the request announced and has not computed.
  request.announce_end = 0;
  announce_from(request, 0);
  cache_full_blocks(request);
  const bool keeps = !request.blocks.empty() && keep_tail(request);
  const int32_t kept = keeps ? request.lasting_of(request.computed_count) / options_.block_size : -1;
  finish_copy(request);
  for (int32_t i = count_of(request.blocks.size()); i-- > request.path.count;) {
    if (i != kept) pool_.release(request.blocks[static_cast<size_t>(i)]);
  }
  // A token that is not known yet says nothing of the KV.
  const int32_t drawn_count = request.emitted_count() - (request.sampled_index >= 0 ? 1 : 0);
  cache_.release(request.path, drawn_count > 0 && !request.corrupt);
  request.path = {};
  request.blocks.clear();
  request.cached_count = 0;
  request.computed_count = 0;
}

void BlockTables::discard(std::span<const Hash128> hashes, Hash128 salt, std::span<const TokenId> ids) {
  cache_.discard(hashes, salt, ids);
  const auto is_corrupt = [this](RadixNodeId run) {
    return run >= 0 && cache_.run_state(run) == PrefixCache::RunState::kCorrupt;
  };
  std::vector<Hash128> corrupt;
  for (const auto& [name, pinned] : pins_.by_name) {
    if (is_corrupt(pinned.pin.path.run) || is_corrupt(pinned.pin.partial)) corrupt.push_back(name);
  }
  for (const Hash128& name : corrupt) unpin(name);
}

void BlockTables::pin(const ScheduledRequest& request) {
  if (!options_.enable_prefix_caching) return;
  const size_t block_size = static_cast<size_t>(options_.block_size);
  const auto prompt_count = static_cast<size_t>(request.prompt_count);
  const size_t full_count = std::min(prompt_count / block_size, request.block_hashes.size());
  const PrefixCache::Match match = cache_.find(std::span(request.block_hashes).first(full_count));
  PartialMatch partial;
  const auto found = static_cast<size_t>(match.count);
  const size_t rest = std::min(prompt_count - found * block_size, block_size - 1);
  if (rest > 0 && !request.ids.empty()) {
    partial = cache_.find_partial(match, request.spec.salt, ids_of(request, found * block_size, rest), 1);
  }
  if (found < full_count) return unpin(request.spec.pin);
  const PrefixCache::Pin pin = cache_.pin(match, partial);
  unpin(request.spec.pin);
  ++pins_.change_count;
  pins_.by_name.emplace(request.spec.pin, Pinned{pin, request.spec.set});
  residency_.pinned(request.spec.set, 1);
}

void BlockTables::unpin(Hash128 name) {
  const auto found = pins_.by_name.find(name);
  if (found == pins_.by_name.end()) return;
  residency_.pinned(found->second.set, -1);
  cache_.unpin(found->second.pin);
  pins_.by_name.erase(found);
  ++pins_.change_count;
}

int32_t BlockTables::pinned_count(const ScheduledRequest& request) const {
  const std::span<const Hash128> hashes(request.block_hashes);
  return cache_.pinned_count(cache_.find(hashes.first(lookup_limit(request, options_.block_size))));
}

// Keeps the computed part of the last, partly filled block; false: the cache has no use for it.
bool BlockTables::keep_tail(const ScheduledRequest& request) {
  const size_t block_size = static_cast<size_t>(options_.block_size);
  const auto lasting_count = static_cast<size_t>(request.lasting_of(request.computed_count));
  const size_t full_count = lasting_count / block_size, rest = lasting_count % block_size;
  if (full_count < static_cast<size_t>(request.path.count)) return false;
  // A copy that was not made yet leaves nothing behind.
  if (!options_.enable_prefix_caching || rest == 0 || request.copy_from >= 0 || request.ids.empty())
    return false;
  return cache_.insert_tail(request.path, {.block = request.blocks[full_count],
                                           .ids = ids_of(request, full_count * block_size, rest),
                                           .root = request.spec.salt,
                                           .user = request.user});
}

// Every block is free, the cache's, or one request's own.
Status BlockTables::verify(std::span<ScheduledRequest* const> running, int32_t reserved_ahead) const {
  TROUPE_RETURN_IF_ERROR(pool_.verify());
  PrefixCache::Holds holds;
  int32_t reserved_count = reserved_ahead;
  for (const ScheduledRequest* request : running) {
    TROUPE_RETURN_IF_ERROR(verify_table(*request));
    if (request->is_counted()) {
      reserved_count += blocks_for(request->computed_count) - count_of(request->blocks.size());
    }
    holds.paths.push_back(request->path);
    if (request->copy_run >= 0) holds.partials.push_back(request->copy_run);
  }
  if (reserved_count != pool_.reserved_count())
    return absl::InternalError("blocks are reserved for no request");
  for (const auto& [name, pinned] : pins_.by_name) holds.pins.push_back(pinned.pin);
  BlockSet owned(pool_.total_count());
  TROUPE_RETURN_IF_ERROR(cache_.verify(holds, owned));
  for (const ScheduledRequest* request : running) {
    for (size_t i = static_cast<size_t>(request->path.count); i < request->blocks.size(); ++i) {
      const BlockId block = request->blocks[i];
      if (!owned.insert(block) || pool_.is_free(block)) {
        return absl::InternalError("block " + std::to_string(block) + " belongs to two, or is free");
      }
    }
  }
  if (const BlockId block = owned.not_in_exactly_one(pool_.free_blocks()); block >= 0) {
    return absl::InternalError("block " + std::to_string(block) + " belongs to nobody");
  }
  return verify_announced(running);
}

Status BlockTables::verify_announced(std::span<ScheduledRequest* const> running) const {
  absl::flat_hash_set<Hash128> announced;
  for (const ScheduledRequest* request : running) {
    if (request->announced < 0) continue;
    const Hash128 hash = request->block_hashes[static_cast<size_t>(request->announced)];
    if (cache_.is_announced_by_other(hash, ~RequestId{0})) announced.insert(hash);
  }
  if (cache_.announced_count() == count_of(announced.size())) return absl::OkStatus();
  return absl::InternalError("a block is announced that no running request will compute");
}

Status BlockTables::verify_table(const ScheduledRequest& request) const {
  const std::string name = "request " + std::to_string(request.id);
  if (!request.is_counted() && count_of(request.blocks.size()) < blocks_for(request.computed_count)) {
    return absl::InternalError(name + " has computed more than its blocks hold");
  }
  if (!options_.enable_prefix_caching) return absl::OkStatus();
  // A trace may use an id for two prefixes; only hashes that were computed from ids are surely a chain.
  const auto hashes = request.ids.empty() ? std::span<const Hash128>() : request.block_hashes;
  // An answer's blocks enter the cache when it ends.
  const int32_t end = request.computed_count / options_.block_size;
  const int32_t cached = request.phase == RequestPhase::kPrefill
                             ? request.lasting_of(request.computed_count)
                             : request.prompt_count - (request.spec.provisional ? 1 : 0);
  if (request.path.count < std::min(cached / options_.block_size, end) || request.path.count > end ||
      !cache_.is_path(request.path, hashes, request.blocks)) {
    return absl::InternalError(name + ": its full blocks are not those cached under their hashes");
  }
  if (request.ids.empty()) return absl::OkStatus();
  const size_t block_size = static_cast<size_t>(options_.block_size);
  Hash128 hash = request.spec.salt;
  for (size_t i = 0; i < static_cast<size_t>(request.path.count); ++i) {
    hash = chain_hash(hash, ids_of(request, i * block_size, block_size));
    if (request.block_hashes[i] != hash) {
      return absl::InternalError(name + ": block " + std::to_string(i) + " has another's hash");
    }
  }
  return absl::OkStatus();
}

}  // namespace troupe
