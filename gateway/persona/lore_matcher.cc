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

LoreMatcher::LoreMatcher(std::vector<Key> keys) : keys_(std::move(keys)) {
  nodes_.emplace_back();
  for (size_t i = 0; i < keys_.size(); ++i) add(static_cast<int32_t>(i), fold_case(keys_[i].text));
  link();
}

int32_t LoreMatcher::child(int32_t node, uint8_t byte) const {
  const auto& next = nodes_[static_cast<size_t>(node)].next;
  const auto found = std::lower_bound(next.begin(), next.end(), std::pair<uint8_t, int32_t>(byte, -1));
  return found != next.end() && found->first == byte ? found->second : -1;
}

void LoreMatcher::add(int32_t key, std::string_view folded) {
  int32_t node = 0;
  for (size_t i = 0; i < folded.size(); ++i) {
    const uint8_t byte = byte_at(folded, i);
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.emplace_back();
      auto& list = nodes_[static_cast<size_t>(node)].next;
      list.insert(std::lower_bound(list.begin(), list.end(), std::pair<uint8_t, int32_t>(byte, -1)),
                  {byte, next});
    }
    node = next;
  }
  nodes_[static_cast<size_t>(node)].ends.push_back(key);
}

// Breadth first: a node's fail is shorter, so it is linked before.
void LoreMatcher::link() {
  std::vector<int32_t> order{0};
  for (size_t i = 0; i < order.size(); ++i) {
    const int32_t node = order[i];
    for (const auto& [byte, next] : nodes_[static_cast<size_t>(node)].next) {
      order.push_back(next);
      int32_t fail = node;
      int32_t to = -1;
      while (fail != 0 && to < 0) {
        fail = nodes_[static_cast<size_t>(fail)].fail;
        to = child(fail, byte);
      }
      Node& linked = nodes_[static_cast<size_t>(next)];
      linked.fail = std::max(to, 0);
      const Node& parent = nodes_[static_cast<size_t>(linked.fail)];
      linked.shorter = parent.ends.empty() ? parent.shorter : linked.fail;
    }
  }
}

bool LoreMatcher::holds(const Key& key, std::string_view text, size_t begin) const {
  const size_t end = begin + key.text.size();
  if (key.case_sensitive && text.substr(begin, key.text.size()) != key.text) return false;
  if (!key.whole_words) return true;
  const bool within = begins_with_letter(key.text, 0) && ends_with_letter(text, begin);
  return !within && !(ends_with_letter(key.text, key.text.size()) && begins_with_letter(text, end));
}

void LoreMatcher::find(std::string_view text, std::vector<bool>& found) const {
  if (keys_.empty()) return;
  const std::string folded = fold_case(text);
  int32_t node = 0;
  for (size_t i = 0; i < folded.size(); ++i) {
    const uint8_t byte = byte_at(folded, i);
    int32_t next = child(node, byte);
    while (next < 0 && node != 0) {
      node = nodes_[static_cast<size_t>(node)].fail;
      next = child(node, byte);
    }
    node = std::max(next, 0);
    for (int32_t at = node; at > 0; at = nodes_[static_cast<size_t>(at)].shorter) {
      for (const int32_t key : nodes_[static_cast<size_t>(at)].ends) {
        const auto index = static_cast<size_t>(key);
        if (!found[index] && holds(keys_[index], text, i + 1 - keys_[index].text.size())) found[index] = true;
      }
    }
  }
}

}  // namespace troupe
