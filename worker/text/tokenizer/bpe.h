#pragma once

// Stage 4 of encoding: byte-pair encoding of one piece. It starts from characters and repeatedly joins the
// neighbours whose merge has the lowest rank (leftmost first). Immutable after load; encode() is safe from
// many threads, each with its own scratch.

#include <boost/json/value.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/core/status.h"

namespace troupe {

namespace bj = boost::json;

class Bpe {
 public:
  // Reads tokenizer.json's "model". Errors name the vocabulary entry or merge.
  static StatusOr<Bpe> load(const bj::value& value, const std::string& where);

  // A linked list of tokens over the piece, and the pending joins.
  struct Symbol {
    int32_t id = -1;
    int32_t previous = -1;
    int32_t next = -1;
    bool alive = true;
  };
  struct Join {
    int32_t rank = 0;
    int32_t left = 0;  // index of the left symbol
    int32_t new_id = 0;
  };
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<Join> joins;
  };

  // An error where this thread's WorkLimit ends it: then `ids` is of no use.
  Status encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;

  std::optional<int32_t> token_to_id(std::string_view token) const;
  // All tokens with their ids, in no particular order.
  const absl::flat_hash_map<std::string, int32_t>& vocab() const { return vocab_; }
  bool ignores_merges() const { return ignore_merges_; }
  int32_t ids_end() const { return ids_end_; }  // highest id + 1

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t new_id = 0;
  };

  Status load_vocab(const bj::value& value, const std::string& where);
  Status load_merges(const bj::value& value, const std::string& where);
  Status add_merge(std::string_view left, std::string_view right, const std::string& where);
  void seed_symbols(std::string_view piece, std::vector<Symbol>& symbols) const;
  const Merge* find_merge(int32_t left, int32_t right) const;
  void push_join(Scratch& scratch, int32_t left) const;
  Status apply_joins(Scratch& scratch) const;
  void join_by_scanning(std::vector<Symbol>& symbols) const;
  void index_characters();
  void index_bytes();
  int32_t character_id(std::string_view character, char32_t code_point) const;
  bool append_bytes(std::string_view character, std::vector<Symbol>& symbols) const;

  absl::flat_hash_map<std::string, int32_t> vocab_;
  absl::flat_hash_map<uint64_t, Merge> merges_;  // key: left id, right id
  int32_t merge_count_ = 0;
  int32_t ids_end_ = 0;
  bool ignore_merges_ = false;
  bool fuse_unknown_ = false;
  std::vector<int32_t> byte_ids_;  // of "<0x00>" to "<0xFF>", -1 for none; empty: no byte_fallback
  int32_t unknown_id_ = -1;
  // Ids of the characters below U+0180 (the byte alphabet among them), -1 for none.
  std::vector<int32_t> low_character_ids_;
};

}  // namespace troupe
