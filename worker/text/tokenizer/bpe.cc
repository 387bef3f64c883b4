// A piece is usually a word of a few characters: scanning all neighbours for the best merge is then the
// fastest way. A piece may also be a megabyte without a space, for which scanning is quadratic: from
// kScanSymbolsMax on, a heap holds the possible joins, and outdated joins are skipped when they surface. Both
// use the same order: lowest rank first, leftmost among equals.

#include "worker/text/tokenizer/bpe.h"

#include <algorithm>

#include "common/core/work_limit.h"
#include "worker/text/unicode.h"

namespace troupe {
namespace {

constexpr size_t kScanSymbolsMax = 24;
constexpr size_t kJoinWork = 16;  // of one join from the heap, as bytes of text

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// std::push_heap keeps the largest on top; the best join is the smallest.
bool comes_later(const Bpe::Join& a, const Bpe::Join& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

}  // namespace

std::optional<int32_t> Bpe::token_to_id(std::string_view token) const {
  auto it = vocab_.find(to_absl(token));
  if (it == vocab_.end()) return std::nullopt;
  return it->second;
}

int32_t Bpe::character_id(std::string_view character, char32_t code_point) const {
  if (code_point < low_character_ids_.size()) return low_character_ids_[code_point];
  auto it = vocab_.find(to_absl(character));
  return it == vocab_.end() ? -1 : it->second;
}

// Appends the bytes of a character that the vocabulary lacks; false if one of them has no token.
bool Bpe::append_bytes(std::string_view character, std::vector<Symbol>& symbols) const {
  if (byte_ids_.empty()) return false;
  for (char c : character) {
    if (byte_ids_[static_cast<unsigned char>(c)] < 0) return false;
  }
  for (char c : character) symbols.push_back({byte_ids_[static_cast<unsigned char>(c)], 0, 0, true});
  return true;
}

void Bpe::seed_symbols(std::string_view piece, std::vector<Symbol>& symbols) const {
  symbols.clear();
  // An unknown character waits to be fused with the next one. As in the original, characters that fall back
  // to bytes overtake it.
  bool unknown_waits = false;
  auto release_unknown = [&] {
    if (unknown_waits) symbols.push_back({unknown_id_, 0, 0, true});
    unknown_waits = false;
  };
  for (size_t pos = 0; pos < piece.size();) {
    size_t begin = pos;
    char32_t code_point = next_code_point(piece, pos);
    std::string_view character = piece.substr(begin, pos - begin);
    int32_t id = character_id(character, code_point);
    if (id >= 0) {
      release_unknown();
      symbols.push_back({id, 0, 0, true});
      continue;
    }
    // Without an unknown token such characters are dropped, as in the original.
    if (append_bytes(character, symbols) || unknown_id_ < 0) continue;
    if (!fuse_unknown_) release_unknown();
    unknown_waits = true;
  }
  release_unknown();
  auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : -1;
  }
}

const Bpe::Merge* Bpe::find_merge(int32_t left, int32_t right) const {
  auto it = merges_.find(pair_key(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

void Bpe::join_by_scanning(std::vector<Symbol>& symbols) const {
  Merge pending[kScanSymbolsMax];  // of symbol i and its right neighbour; new_id < 0: none
  size_t count = symbols.size();
  auto look_up = [&](size_t i) {
    const Merge* merge = i + 1 < count ? find_merge(symbols[i].id, symbols[i + 1].id) : nullptr;
    pending[i] = merge == nullptr ? Merge{0, -1} : *merge;
  };
  for (size_t i = 0; i < count; ++i) look_up(i);
  for (;;) {
    size_t best = count;
    for (size_t i = 0; i + 1 < count; ++i) {
      if (pending[i].new_id >= 0 && (best == count || pending[i].rank < pending[best].rank)) best = i;
    }
    if (best == count) break;
    symbols[best].id = pending[best].new_id;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i].id = symbols[i + 1].id;
      pending[i] = pending[i + 1];
    }
    --count;
    look_up(best);
    if (best > 0) look_up(best - 1);
  }
  symbols.resize(count);
}

void Bpe::push_join(Scratch& scratch, int32_t left) const {
  const Symbol& symbol = scratch.symbols[static_cast<size_t>(left)];
  if (symbol.next < 0) return;
  const Merge* merge = find_merge(symbol.id, scratch.symbols[static_cast<size_t>(symbol.next)].id);
  if (merge == nullptr) return;
  scratch.joins.push_back({merge->rank, left, merge->new_id});
  std::push_heap(scratch.joins.begin(), scratch.joins.end(), comes_later);
}

Status Bpe::apply_joins(Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<Join>& joins = scratch.joins;
  joins.clear();
  for (size_t i = 0; i < symbols.size(); ++i) push_join(scratch, static_cast<int32_t>(i));
  while (!joins.empty()) {
    TROUPE_RETURN_IF_ERROR(count_work(kJoinWork));
    std::pop_heap(joins.begin(), joins.end(), comes_later);
    Join join = joins.back();
    joins.pop_back();
    Symbol& left = symbols[static_cast<size_t>(join.left)];
    if (!left.alive || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    const Merge* merge = find_merge(left.id, right.id);
    bool overtaken = merge == nullptr || merge->new_id != join.new_id;
    if (overtaken) continue;
    left.id = join.new_id;
    right.alive = false;
    left.next = right.next;
    if (right.next >= 0) symbols[static_cast<size_t>(right.next)].previous = join.left;
    if (left.previous >= 0) push_join(scratch, left.previous);
    push_join(scratch, join.left);
  }
  return {};
}

Status Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    auto it = vocab_.find(to_absl(piece));
    if (it != vocab_.end()) {
      ids.push_back(it->second);
      return {};
    }
  }
  TROUPE_RETURN_IF_ERROR(count_work(piece.size()));
  seed_symbols(piece, scratch.symbols);
  if (scratch.symbols.size() <= kScanSymbolsMax) {
    join_by_scanning(scratch.symbols);
  } else {
    TROUPE_RETURN_IF_ERROR(apply_joins(scratch));
  }
  for (const Symbol& symbol : scratch.symbols) {
    if (symbol.alive) ids.push_back(symbol.id);
  }
  return {};
}

}  // namespace troupe
