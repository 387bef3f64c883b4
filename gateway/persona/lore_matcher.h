#pragma once

// Finds which of many keys occur in a text, in one pass: the automaton of Aho and Corasick (Efficient string
// matching, CACM 18(6), 1975). Letters match in either case (Latin, Greek and Cyrillic ones) unless a key
// says otherwise; a key that begins or ends with such a letter or a digit must do so at a word's edge, unless
// it says otherwise. Time is linear in the text, times the different lengths of keys that end at one place;
// memory is about 20 bytes for each byte of keys that no other key begins with.

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
  struct Tree;
  int32_t child(int32_t node, uint8_t byte) const;  // -1: none
  void flatten(const Tree& tree);
  void link();
  bool holds(const Key& key, std::string_view text, size_t begin) const;
  void find_ends(int32_t node, std::string_view text, size_t end, std::vector<bool>& found) const;

  std::vector<Key> keys_;
  // Nodes of the tree of keys, breadth first: a node's children stand together, by byte.
  std::vector<uint8_t> byte_;   // that leads to the node
  std::vector<int32_t> first_;  // its first child; its last one stands before the next node's first
  std::vector<int32_t> fail_;
  std::vector<int32_t> shorter_;  // the next node on the way of fails that ends keys; -1: none
  std::vector<int32_t> end_at_;   // its first in ends_, likewise
  std::vector<int32_t> ends_;     // keys by node: those in either case, then the others by text
};

// The text in lower case, byte for byte as long.
std::string fold_case(std::string_view text);

}  // namespace troupe
