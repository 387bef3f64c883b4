// A request is given the blocks of all its known ids at once, so a prefill never runs out half way and only
// decodes can. Its full blocks are in the prefix cache from the step that completed them, under the hash of
// everything up to them: preemption, the next turn and other requests all find them by the same look-up. The
// block that a request did not fill stays too when the request ends; who shares its first tokens goes on in a
// copy of it, so that what is cached is never written to.

#include "worker/schedule/block_tables.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"

namespace troupe {

namespace {

int32_t count_of(size_t size) {
  return static_cast<int32_t>(size);
}

// How many blocks ahead memory is fetched.
constexpr size_t kAhead = 8;

std::span<const TokenId> ids_of(const ScheduledRequest& request, size_t begin, size_t count) {
  if (request.ids.empty()) return {};
  return std::span<const TokenId>(request.ids).subspan(begin, count);
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
    // An answer nobody foretold: its blocks are named after the request, which nobody else can ask for.
    for (uint64_t i = hashes.size(); (i + 1) * block_size <= static_cast<size_t>(request.known_count); ++i) {
      hashes.push_back(chain_hash(Hash128{request.id, i}, std::string_view("answer")));
    }
    return;
  }
  while ((hashes.size() + 1) * block_size <= request.ids.size()) {
    const Hash128 parent = hashes.empty() ? request.salt : hashes.back();
    const std::span<const TokenId> ids(request.ids);
    hashes.push_back(chain_hash(parent, ids.subspan(hashes.size() * block_size, block_size)));
  }
}

void BlockTables::look_up(ScheduledRequest& request) const {
  // The last id is computed even if its block is known: its logits are needed.
  const size_t block_size = static_cast<size_t>(options_.block_size);
  const std::vector<Hash128>& hashes = request.block_hashes;
  const size_t limit =
      request.scores_prompt
          ? 0
          : std::min(static_cast<size_t>(request.known_count - 1) / block_size, hashes.size());
  request.look_found_count =
      cache_.find_leading(std::span<const Hash128>(hashes).first(limit), request.look_found_count);
  const auto found = static_cast<size_t>(request.look_found_count);
  request.look_awaits = found < limit && cache_.is_announced_by_other(hashes[found], request.id);
  request.look_partial = {};
  if (options_.enable_prefix_caching && !request.scores_prompt && !request.ids.empty()) {
    const std::span<const TokenId> ids(request.ids);
    const size_t rest = std::min(ids.size() - 1 - found * block_size, block_size);
    request.look_partial = cache_.find_partial(found == 0 ? request.salt : hashes[found - 1],
                                               ids.subspan(found * block_size, rest), worth_copying());
  }
  request.look_change_count = cache_.change_count();
}

int32_t BlockTables::look_cached_count(const ScheduledRequest& request) const {
  return request.look_found_count * options_.block_size + request.look_partial.count;
}

bool BlockTables::look_is_stale(const ScheduledRequest& request) const {
  return request.look_change_count != cache_.change_count();
}

int32_t BlockTables::unreferenced_found() const {
  // Whoever holds a block holds all before it, so the unreferenced ones are the last of those found.
  int32_t count = 0;
  while (count < count_of(found_.size()) &&
         pool_.reference_count(found_[found_.size() - 1 - static_cast<size_t>(count)]) == 0) {
    ++count;
  }
  return count;
}

bool BlockTables::admit(ScheduledRequest& request, int32_t reserve_count) {
  const int32_t needed = blocks_for(request.known_count);
  // Cheap refusal first. Found blocks may have been evicted since the look, so it errs to the optimistic
  // side.
  if (needed - request.look_found_count + reserve_count > available_count()) return false;
  look_up(request);
  if (request.look_awaits) return false;
  cache_.find_path(
      std::span<const Hash128>(request.block_hashes).first(static_cast<size_t>(request.look_found_count)),
      found_);
  const int32_t new_count = needed - request.look_found_count;
  const int32_t spare_count = available_count() - reserve_count - new_count - unreferenced_found();
  if (spare_count < 0) return false;
  // The original must stay until it is copied; where there is no room for both it is done without.
  PartialMatch& partial = request.look_partial;
  if (partial.count > 0 && spare_count == 0 && pool_.reference_count(partial.block) == 0) partial = {};
  take_blocks(request, needed);
  const size_t full_count = static_cast<size_t>(request.known_count / options_.block_size);
  for (size_t i = static_cast<size_t>(request.look_found_count);
       i < std::min(full_count, request.block_hashes.size()); ++i) {
    // Only where the cache was not asked can a block behind those found be there.
    if (request.scores_prompt && cache_.find(request.block_hashes[i]) >= 0) continue;
    cache_.announce(request.block_hashes[i], request.id);
  }
  return true;
}

// The found ones, first of all: what is held is not evicted for those that are new.
void BlockTables::take_blocks(ScheduledRequest& request, int32_t count) {
  request.blocks.reserve(static_cast<size_t>(count));
  for (size_t i = 0; i < found_.size(); ++i) {
    if (i + kAhead < found_.size()) cache_.prefetch(found_[i + kAhead]);
    request.blocks.push_back(found_[i]);
    cache_.acquire(found_[i], request.user);
  }
  const int32_t prefix_blocks = request.prefix_count / options_.block_size;
  if (prefix_blocks > 0 && request.look_found_count >= prefix_blocks) {
    const auto last = static_cast<size_t>(prefix_blocks - 1);
    residency_.found(request.blocks[last], prefix_blocks - 1, request.set);
  }
  if (request.look_partial.count > 0) {
    request.copy_from = request.look_partial.block;
    cache_.acquire(request.copy_from, request.user);
  }
  while (count_of(request.blocks.size()) < count) request.blocks.push_back(take_block());
  request.cached_count = look_cached_count(request);
  request.computed_count = request.cached_count;
}

KvCopy BlockTables::copy_of(const ScheduledRequest& request) const {
  return {request.copy_from, request.blocks[static_cast<size_t>(request.cached_count / options_.block_size)]};
}

void BlockTables::finish_copy(ScheduledRequest& request) {
  if (request.copy_from < 0) return;
  cache_.release(request.copy_from);
  request.copy_from = -1;
}

bool BlockTables::grow(ScheduledRequest& request) {
  if (blocks_for(request.known_count) <= count_of(request.blocks.size())) return true;
  const BlockId block = take_block();
  if (block < 0) return false;
  request.blocks.push_back(block);
  return true;
}

BlockId BlockTables::take_block() {
  if (pool_.free_count() == 0) cache_.evict(1);
  return pool_.allocate();
}

void BlockTables::cache_full_blocks(ScheduledRequest& request, int32_t from_count) {
  if (!options_.enable_prefix_caching) return;
  const size_t first = static_cast<size_t>(from_count / options_.block_size);
  const size_t end = static_cast<size_t>(request.computed_count / options_.block_size);
  if (first == end) return;
  extend_hashes(request);
  const size_t block_size = static_cast<size_t>(options_.block_size);
  for (size_t i = first; i < std::min(first + kAhead, end); ++i) cache_.prefetch(request.block_hashes[i]);
  for (size_t i = first; i < end; ++i) {
    if (i + kAhead < end) {
      cache_.prefetch(request.block_hashes[i + kAhead]);
      cache_.prefetch(request.blocks[i + kAhead]);
    }
    const Hash128 hash = request.block_hashes[i];
    const BlockId own = request.blocks[i];
    const BlockId held = cache_.insert({.block = own,
                                        .hash = hash,
                                        .parent = i == 0 ? request.salt : request.block_hashes[i - 1],
                                        .ids = ids_of(request, i * block_size, block_size),
                                        .user = request.user,
                                        .parent_block = i == 0 ? -1 : request.blocks[i - 1]});
    if (held == own) {
      name_block(request, i);
    } else {
      cache_.acquire(held, request.user);
      request.blocks[i] = held;
      cache_.release(own);
    }
    cache_.withdraw(hash, request.id);
  }
}

// Tells residency whose the index-th block of the request is.
void BlockTables::name_block(const ScheduledRequest& request, size_t index) {
  const bool of_set =
      static_cast<int64_t>(index + 1) * options_.block_size <= request.prefix_count && !request.set.is_zero();
  const bool nameless = !of_set && request.session.is_zero() && options_.name_blocks;
  const Hash128 name = of_set ? request.set : nameless ? request.block_hashes[index] : request.session;
  residency_.cached(request.blocks[index], count_of(index), of_set ? HolderKind::kSet : HolderKind::kSession,
                    name);
}

void BlockTables::release(ScheduledRequest& request) {
  // What a running request announced and has not computed yet; others may now compute it.
  if (!request.blocks.empty()) {
    for (size_t i = static_cast<size_t>(request.computed_count / options_.block_size);
         i < request.block_hashes.size(); ++i) {
      cache_.withdraw(request.block_hashes[i], request.id);
    }
    keep_tail(request);
  }
  finish_copy(request);
  for (size_t i = request.blocks.size(); i-- > 0;) {
    if (i >= kAhead) cache_.prefetch(request.blocks[i - kAhead]);
    cache_.release(request.blocks[i]);
  }
  request.blocks.clear();
  request.cached_count = 0;
  request.computed_count = 0;
}

// What was computed of the last block, not filled.
void BlockTables::keep_tail(const ScheduledRequest& request) {
  const size_t block_size = static_cast<size_t>(options_.block_size);
  const size_t full_count = static_cast<size_t>(request.computed_count) / block_size;
  const size_t rest = static_cast<size_t>(request.computed_count) % block_size;
  // A copy that was not made yet leaves nothing behind.
  if (!options_.enable_prefix_caching || rest == 0 || request.copy_from >= 0 || request.ids.empty()) return;
  cache_.insert_tail({.block = request.blocks[full_count],
                      .hash = {},
                      .parent = full_count == 0 ? request.salt : request.block_hashes[full_count - 1],
                      .ids = std::span<const TokenId>(request.ids).subspan(full_count * block_size, rest),
                      .user = request.user,
                      .parent_block = full_count == 0 ? -1 : request.blocks[full_count - 1]});
}

Status BlockTables::verify(std::span<ScheduledRequest* const> running) const {
  TROUPE_RETURN_IF_ERROR(pool_.verify());
  TROUPE_RETURN_IF_ERROR(cache_.verify());
  std::vector<int32_t> references(static_cast<size_t>(pool_.total_count()));
  absl::flat_hash_set<Hash128> uncomputed;
  for (const ScheduledRequest* request : running) {
    TROUPE_RETURN_IF_ERROR(verify_table(*request));
    for (BlockId block : request->blocks) ++references[static_cast<size_t>(block)];
    if (request->copy_from >= 0) ++references[static_cast<size_t>(request->copy_from)];
    const size_t computed_count = static_cast<size_t>(request->computed_count / options_.block_size);
    for (size_t i = computed_count; i < request->block_hashes.size(); ++i) {
      if (cache_.is_announced_by_other(request->block_hashes[i], ~RequestId{0})) {
        uncomputed.insert(request->block_hashes[i]);
      }
    }
  }
  if (cache_.announced_count() != count_of(uncomputed.size())) {
    return absl::InternalError("a block is announced that no running request will compute");
  }
  for (BlockId block = 0; block < pool_.total_count(); ++block) {
    if (pool_.reference_count(block) != references[static_cast<size_t>(block)]) {
      return absl::InternalError("block " + std::to_string(block) + " has a reference without a holder");
    }
  }
  return absl::OkStatus();
}

Status BlockTables::verify_table(const ScheduledRequest& request) const {
  const std::string name = "request " + std::to_string(request.id);
  if (count_of(request.blocks.size()) < blocks_for(request.computed_count)) {
    return absl::InternalError(name + " has computed more than its blocks hold");
  }
  if (!options_.enable_prefix_caching) return absl::OkStatus();
  const size_t block_size = static_cast<size_t>(options_.block_size);
  const size_t full_count = static_cast<size_t>(request.computed_count) / block_size;
  Hash128 hash = request.salt;
  for (size_t i = 0; i < full_count; ++i) {
    hash = request.ids.empty() ? request.block_hashes[i]
                               : chain_hash(hash, ids_of(request, i * block_size, block_size));
    if (request.block_hashes[i] != hash || cache_.find(hash) != request.blocks[i]) {
      return absl::InternalError(name + ": block " + std::to_string(i) + " is not cached under its hash");
    }
  }
  return absl::OkStatus();
}

}  // namespace troupe
