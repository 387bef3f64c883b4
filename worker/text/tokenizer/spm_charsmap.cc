// The charsmap's trie is a Darts-clone double array: unit 0 is the root; a unit's offset, XORed with its own
// place, is the base of its children; the child for byte c is at base ^ c if its label says c; a unit with a
// leaf keeps the value at its base. The library's walk checks nothing, so every base that can be reached is
// visited here: all 256 places that a byte could lead to must be inside, values must point into the texts,
// and no path may pass more leaves than the library's result list holds.

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "worker/text/tokenizer/spm_model.h"

namespace troupe {
namespace {

constexpr int kLeavesOnPathMax = 32;
constexpr uint32_t kByteCount = 256;

class TrieCheck {
 public:
  TrieCheck(std::vector<uint32_t> units, std::string_view texts)
      : units_(std::move(units)), texts_(texts), state_(units_.size()), leaves_(units_.size()) {}

  // Depth first with an explicit stack, because a path may be long.
  Status run() {
    const uint32_t root = offset_of(units_[0]);
    TROUPE_RETURN_IF_ERROR(enter(root, /*leaf=*/0));
    while (!path_.empty()) {
      Visit& visit = path_.back();
      if (visit.next_byte == kByteCount) {
        leave();
        continue;
      }
      uint32_t byte = visit.next_byte++;
      uint32_t at = visit.base ^ byte;
      if (label_of(units_[at]) == byte) TROUPE_RETURN_IF_ERROR(step(at));
    }
    return leaves_[root] > kLeavesOnPathMax ? broken("too many texts that begin with one another") : Status();
  }

 private:
  enum class State : uint8_t { kNew, kOnPath, kDone };
  struct Visit {
    uint32_t base = 0;
    uint32_t next_byte = 0;
    int leaf = 0;  // values on the unit that leads here: 0 or 1
  };

  static uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }
  static uint32_t label_of(uint32_t unit) { return unit & ((1u << 31) | 0xFF); }
  static uint32_t value_of(uint32_t unit) { return unit & ((1u << 31) - 1); }
  static Status broken(std::string_view why) {
    return invalid_argument(
        absl::StrCat("normalizer_spec.precompiled_charsmap: its trie is broken: ", to_absl(why)));
  }

  bool is_text(uint32_t value) const {
    return value < texts_.size() && (static_cast<unsigned char>(texts_[value]) & 0xC0) != 0x80;
  }

  Status step(uint32_t at) {
    uint32_t base = at ^ offset_of(units_[at]);
    int leaf = (units_[at] >> 8 & 1) != 0 ? 1 : 0;
    if (leaf == 1 && (base >= units_.size() || !is_text(value_of(units_[base])))) {
      return broken("a value points outside of the texts");
    }
    if (base < units_.size() && state_[base] == State::kDone) {
      raise(path_.back().base, leaves_[base] + leaf);
      return {};
    }
    return enter(base, leaf);
  }

  Status enter(uint32_t base, int leaf) {
    // XOR with a byte stays within the block of 256 units.
    if ((base | 0xFF) >= units_.size()) return broken("a unit points outside");
    if (state_[base] == State::kOnPath) return broken("a path without an end");
    state_[base] = State::kOnPath;
    path_.push_back({base, 0, leaf});
    return {};
  }

  void leave() {
    Visit done = path_.back();
    path_.pop_back();
    state_[done.base] = State::kDone;
    if (!path_.empty()) raise(path_.back().base, leaves_[done.base] + done.leaf);
  }

  void raise(uint32_t base, int leaves) { leaves_[base] = std::max(leaves_[base], leaves); }

  std::vector<uint32_t> units_;
  std::string_view texts_;
  std::vector<State> state_;  // by base
  std::vector<int> leaves_;   // by base: most values on a path below it
  std::vector<Visit> path_;
};

}  // namespace

Status check_charsmap(std::string_view charsmap) {
  constexpr std::string_view kWhere = "normalizer_spec.precompiled_charsmap";
  uint32_t trie_size = 0;
  if (charsmap.size() > sizeof trie_size) std::memcpy(&trie_size, charsmap.data(), sizeof trie_size);
  if (trie_size == 0 || trie_size % sizeof(uint32_t) != 0 ||
      trie_size >= charsmap.size() - sizeof trie_size) {
    return invalid_argument(absl::StrCat(to_absl(kWhere), ": its size does not fit its trie"));
  }
  std::vector<uint32_t> units(trie_size / sizeof(uint32_t));
  std::memcpy(units.data(), charsmap.data() + sizeof trie_size, trie_size);
  std::string_view texts = charsmap.substr(sizeof trie_size + trie_size);
  if (texts.back() != '\0' || !is_valid_utf8(texts)) {
    return invalid_argument(absl::StrCat(to_absl(kWhere), ": its texts are no UTF-8 that ends with a NUL"));
  }
  return TrieCheck(std::move(units), texts).run();
}

}  // namespace troupe
