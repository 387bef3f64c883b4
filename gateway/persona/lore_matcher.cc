#include "gateway/persona/lore_matcher.h"

#include <algorithm>

namespace troupe {

namespace {

uint8_t byte_at(std::string_view text, size_t at) {
  return static_cast<uint8_t>(text[at]);
}

// Code point of the two bytes of UTF-8 there; 0: it is none of two bytes.
uint32_t two_bytes_at(std::string_view text, size_t at) {
  const bool two = at + 1 < text.size() && (byte_at(text, at) & 0xE0) == 0xC0;
  return two ? ((byte_at(text, at) & 0x1FU) << 6) | (byte_at(text, at + 1) & 0x3FU) : 0;
}

// The lower case, where that has two bytes as well: Latin-1, Greek, Cyrillic.
uint32_t lower_of(uint32_t c) {
  if (c >= 0xC0 && c <= 0xDE && c != 0xD7) return c + 0x20;
  if (c >= 0x100 && c <= 0x137 && c != 0x130 && c != 0x131) return c | 1U;
  if (c >= 0x391 && c <= 0x3A9) return c + 0x20;
  if (c >= 0x410 && c <= 0x42F) return c + 0x20;
  if (c >= 0x400 && c <= 0x40F) return c + 0x50;
  return c;
}

// Scripts that write words apart: Latin, Greek, Cyrillic, and their neighbours of two bytes.
bool is_word_byte(uint8_t byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         byte == '_' || (byte >= 0xC3 && byte <= 0xDF);
}

bool begins_with_letter(std::string_view text, size_t at) {
  return at < text.size() && is_word_byte(byte_at(text, at));
}

// The character that ends before `end` is one of a word.
bool ends_with_letter(std::string_view text, size_t end) {
  if (end == 0) return false;
  size_t at = end - 1;
  if ((byte_at(text, at) & 0xC0) == 0x80 && at > 0) at -= 1;
  return is_word_byte(byte_at(text, at));  // (a middle byte of three or four is no word's)
}

}  // namespace

std::string fold_case(std::string_view text) {
  std::string out(text);
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] >= 'A' && out[i] <= 'Z') {
      out[i] = static_cast<char>(out[i] - 'A' + 'a');
    } else if (const uint32_t c = two_bytes_at(text, i); c != 0) {
      const uint32_t lower = lower_of(c);
      out[i] = static_cast<char>(0xC0U | (lower >> 6));
      out[i + 1] = static_cast<char>(0x80U | (lower & 0x3FU));
      i += 1;
    }
  }
  return out;
}

// As it is built; a node takes too much memory to be kept so.
struct LoreMatcher::Tree {
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> next;  // by byte, sorted
    std::vector<int32_t> ends;                      // keys
  };
  std::vector<Node> nodes{1};

  void add(int32_t key, std::string_view folded) {
    int32_t node = 0;
    for (size_t i = 0; i < folded.size(); ++i) node = child(node, byte_at(folded, i));
    nodes[static_cast<size_t>(node)].ends.push_back(key);
  }
  // Made where there is none.
  int32_t child(int32_t node, uint8_t byte) {
    const auto made = static_cast<int32_t>(nodes.size());
    auto& next = nodes[static_cast<size_t>(node)].next;
    const auto at = std::lower_bound(next.begin(), next.end(), std::pair<uint8_t, int32_t>(byte, -1));
    if (at != next.end() && at->first == byte) return at->second;
    next.insert(at, {byte, made});
    nodes.emplace_back();
    return made;
  }
};

LoreMatcher::LoreMatcher(std::vector<Key> keys) : keys_(std::move(keys)) {
  Tree tree;
  for (size_t i = 0; i < keys_.size(); ++i) tree.add(static_cast<int32_t>(i), fold_case(keys_[i].text));
  flatten(tree);
  link();
}

int32_t LoreMatcher::child(int32_t node, uint8_t byte) const {
  const auto at = static_cast<size_t>(node);
  const auto begin = byte_.begin() + first_[at], end = byte_.begin() + first_[at + 1];
  const auto found = std::lower_bound(begin, end, byte);
  return found != end && *found == byte ? static_cast<int32_t>(found - byte_.begin()) : -1;
}

void LoreMatcher::flatten(const Tree& tree) {
  const size_t count = tree.nodes.size();
  std::vector<int32_t> order{0};
  order.reserve(count);
  byte_.reserve(count);
  byte_.push_back(0);
  for (size_t i = 0; i < order.size(); ++i) {
    const Tree::Node& node = tree.nodes[static_cast<size_t>(order[i])];
    first_.push_back(static_cast<int32_t>(order.size()));
    for (const auto& [byte, next] : node.next) {
      byte_.push_back(byte);
      order.push_back(next);
    }
    const auto begin = static_cast<std::ptrdiff_t>(ends_.size());
    end_at_.push_back(static_cast<int32_t>(begin));
    ends_.insert(ends_.end(), node.ends.begin(), node.ends.end());
    std::sort(ends_.begin() + begin, ends_.end(), [this](int32_t a, int32_t b) {
      const Key &left = keys_[static_cast<size_t>(a)], &right = keys_[static_cast<size_t>(b)];
      if (left.case_sensitive != right.case_sensitive) return right.case_sensitive;
      return left.case_sensitive && left.text < right.text;
    });
  }
  first_.push_back(static_cast<int32_t>(order.size()));
  end_at_.push_back(static_cast<int32_t>(ends_.size()));
}

// A node's fail is shorter, so it is linked before.
void LoreMatcher::link() {
  fail_.assign(byte_.size(), 0);
  shorter_.assign(byte_.size(), -1);
  for (size_t parent = 0; parent < byte_.size(); ++parent) {
    for (auto node = static_cast<size_t>(first_[parent]); node < static_cast<size_t>(first_[parent + 1]);
         ++node) {
      auto fail = static_cast<int32_t>(parent);
      int32_t to = -1;
      while (fail != 0 && to < 0) {
        fail = fail_[static_cast<size_t>(fail)];
        to = child(fail, byte_[node]);
      }
      fail_[node] = std::max(to, 0);
      const auto linked = static_cast<size_t>(fail_[node]);
      shorter_[node] = end_at_[linked] == end_at_[linked + 1] ? shorter_[linked] : fail_[node];
    }
  }
}

bool LoreMatcher::holds(const Key& key, std::string_view text, size_t begin) const {
  const size_t end = begin + key.text.size();
  if (!key.whole_words) return true;
  const bool within = begins_with_letter(key.text, 0) && ends_with_letter(text, begin);
  return !within && !(ends_with_letter(key.text, key.text.size()) && begins_with_letter(text, end));
}

// Looks at keys with great and small letters only where they are spelt as the text.
void LoreMatcher::find_ends(int32_t node, std::string_view text, size_t end, std::vector<bool>& found) const {
  const auto at = static_cast<size_t>(node);
  const auto first = ends_.begin() + end_at_[at], last = ends_.begin() + end_at_[at + 1];
  const auto key_of = [this](int32_t key) -> const Key& { return keys_[static_cast<size_t>(key)]; };
  const auto note = [&](int32_t key) {
    const auto index = static_cast<size_t>(key);
    if (!found[index] && holds(keys_[index], text, end - keys_[index].text.size())) found[index] = true;
  };
  auto next = first;
  for (; next != last && !key_of(*next).case_sensitive; ++next) note(*next);
  if (next == last) return;
  const size_t bytes = key_of(*next).text.size();
  const std::string_view spelt = text.substr(end - bytes, bytes);
  next = std::lower_bound(next, last, spelt,
                          [&](int32_t key, std::string_view other) { return key_of(key).text < other; });
  for (; next != last && key_of(*next).text == spelt; ++next) note(*next);
}

void LoreMatcher::find(std::string_view text, std::vector<bool>& found) const {
  if (keys_.empty()) return;
  const std::string folded = fold_case(text);
  int32_t node = 0;
  for (size_t i = 0; i < folded.size(); ++i) {
    const uint8_t byte = byte_at(folded, i);
    int32_t next = child(node, byte);
    while (next < 0 && node != 0) {
      node = fail_[static_cast<size_t>(node)];
      next = child(node, byte);
    }
    node = std::max(next, 0);
    for (int32_t at = node; at > 0; at = shorter_[static_cast<size_t>(at)]) find_ends(at, text, i + 1, found);
  }
}

}  // namespace troupe
