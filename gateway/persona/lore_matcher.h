#pragma once

// Finds which of many keys occur in a text, in one pass: the automaton of Aho and Corasick (Efficient string
// matching, CACM 18(6), 1975). Letters match in either case (Latin, Greek and Cyrillic ones) unless a key
// says otherwise; a key that begins or ends with such a letter or a digit must do so at a word's edge, unless
// it says otherwise. Time is linear in the text, times the different lengths of keys that end at one place.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

class LoreMatcher {
 public:
  struct Key {
    std::string text;  // not empty
    bool case_sensitive = false;
    bool whole_words = true;
  };
  LoreMatcher() = default;
  explicit LoreMatcher(std::vector<Key> keys);

  // Sets found[i] for every key i that occurs in `text`. REQUIRES: found.size() is the number of keys.
  void find(std::string_view text, std::vector<bool>& found) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> next;  // by byte, sorted
    int32_t fail = 0;
    int32_t shorter = -1;       // the next node on the way of fails that ends keys; -1: none
    std::vector<int32_t> ends;  // keys
  };
  int32_t child(int32_t node, uint8_t byte) const;  // -1: none
  void add(int32_t key, std::string_view folded);
  void link();
  bool holds(const Key& key, std::string_view text, size_t begin) const;

  std::vector<Key> keys_;
  std::vector<Node> nodes_;
};

// The text in lower case, byte for byte as long.
std::string fold_case(std::string_view text);

}  // namespace troupe
