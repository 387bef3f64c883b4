#include "sim/trace/trace_join.h"

#include <algorithm>

#include "sim/trace/block_names.h"

namespace troupe::sim {

namespace {

size_t blocks_in(int64_t tokens, const TraceRequest& request) {
  return static_cast<size_t>(tokens / request.block_tokens);
}

bool is_answer(const RecordedFacts& facts, size_t message) {
  return std::binary_search(facts.answers.begin(), facts.answers.end(), static_cast<int32_t>(message));
}

}  // namespace

bool TraceJoin::is_retry(const TraceRequest& request, const RecordedFacts& facts) {
  if (facts.ids.empty()) return false;
  Hash128 key = block_name(facts.ids.back());
  key.hi ^= request.session;
  Failed* before = failed_.find(key);
  const bool again = before != nullptr && before->count > 0 && request.at - before->at <= kRetryWithin;
  if (before != nullptr) before->count = again ? before->count - 1 : 0;
  if (facts.failed) {
    Failed& failed = failed_.touch(key);
    failed.at = request.at;
    failed.count += 1;
  }
  return again;
}

// Appends the ids of the known messages, in order; returns the first unknown one.
size_t TraceJoin::begin_as_before(const TraceRequest& request, const RecordedFacts& facts) {
  const size_t count = facts.ids.size();
  const Place* before = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const bool is_last = i + 1 == count;
    const Hash128 key = block_name(facts.ids[i]);
    const Place* known = places_.find(key);
    if (known != nullptr && known->first_block == ids_.size() &&
        (is_last ? known->tokens == request.input_tokens : known->tokens <= request.input_tokens)) {
      ids_.insert(ids_.end(), known->ids.begin(), known->ids.end());
    } else if (before != nullptr && before->answer_end > 0 && before->answer_end <= request.input_tokens &&
               is_answer(facts, i) && !is_last) {
      Place quoted;
      quoted.tokens = static_cast<int32_t>(before->answer_end);
      quoted.first_block = ids_.size();
      quoted.ids = before->answer_ids;
      ids_.insert(ids_.end(), quoted.ids.begin(), quoted.ids.end());
      places_.touch(key) = std::move(quoted);
    } else {
      return i;
    }
    before = &places_.touch(key);
    ends_[i] = before->tokens;
  }
  return count;
}

// Appends the ids of the rest, from message `first` on. If it begins elsewhere than by the line's own
// lengths, an own id may cover less text than its block: then it stands for the message, too.
void TraceJoin::go_on(const TraceRequest& request, const RecordedFacts& facts, size_t first) {
  const int32_t begin = first > 0 ? ends_[first - 1] : 0;
  const bool is_moved = first > 0 && begin != facts.ends[first - 1];
  for (size_t i = first; i < ends_.size(); ++i) ends_[i] = std::max(begin, facts.ends[i]);
  size_t message = first;
  for (size_t block = ids_.size(); block < request.blocks.size(); ++block) {
    const int64_t end = static_cast<int64_t>(block + 1) * request.block_tokens;
    while (message + 1 < ends_.size() && ends_[message] < end) ++message;
    const uint64_t own = request.blocks[block];
    ids_.push_back(is_moved ? mix_hash({own, 0}, {facts.ids[message], 0}) : own);
  }
}

void TraceJoin::remember(const TraceRequest& request, const RecordedFacts& facts, size_t first) {
  size_t block = first > 0 ? blocks_in(ends_[first - 1], request) : 0;
  for (size_t i = first; i < ends_.size(); ++i) {
    const size_t end = std::min(blocks_in(ends_[i], request), ids_.size());
    Place& place = places_.touch(block_name(facts.ids[i]));
    place.tokens = ends_[i];
    place.first_block = block;
    place.ids.assign(ids_.begin() + static_cast<ptrdiff_t>(block),
                     ids_.begin() + static_cast<ptrdiff_t>(end));
    place.answer_end = 0;
    block = end;
  }
  if (!facts.answered) return;
  const int64_t answer_end = int64_t{request.input_tokens} + request.output_tokens;
  if (blocks_in(answer_end, request) - blocks_in(request.input_tokens, request) !=
      request.output_blocks.size()) {
    return;
  }
  Place& asked = places_.touch(block_name(facts.ids.back()));
  asked.answer_end = answer_end;
  asked.answer_ids = request.output_blocks;
}

void TraceJoin::rename(TraceRequest& request, const RecordedFacts& facts) {
  if (facts.ids.empty()) return;
  ids_.clear();
  ends_.assign(facts.ids.size(), 0);
  const size_t first = begin_as_before(request, facts);
  if (first < ends_.size()) go_on(request, facts, first);
  remember(request, facts, first);
  const auto prefix_end = std::find(facts.ends.begin(), facts.ends.end(), request.prefix_tokens);
  if (request.prefix_tokens > 0 && prefix_end != facts.ends.end())
    request.prefix_tokens = ends_[static_cast<size_t>(prefix_end - facts.ends.begin())];
  // A prompt known to its end may have counted its partial last block, or not.
  for (size_t block = ids_.size(); block < request.blocks.size(); ++block)
    ids_.push_back(request.blocks[block]);
  ids_.resize(request.blocks.size());
  request.blocks.swap(ids_);
}

}  // namespace troupe::sim
