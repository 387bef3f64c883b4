#pragma once

// A persona as it is published: the body of PUT /v1/personas/{name}, read strictly and within bounds.
//
//   {"card": "text" or a character card of SillyTavern's (V1, V2, V3), "name": "{{char}}", "examples":
//   "text",
//    "lore": [{"keys": […], "content": "…", "depth": 1}, …], "post_history": "…", "user_note": "…",
//    "user_in_card": "neutral", "user_word": "User", "variables": {…}, "greetings": […]}
//
// A card's own fields are read by character_card.h. What the texts become in a prompt: prompt_parts.h.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/persona/late_text.h"

namespace troupe {

inline constexpr size_t kPersonaNameBytesMax = 128;
inline constexpr size_t kPersonaBytesMax = 256u
                                           << 10;  // of a definition: four versions are one record in etcd
inline constexpr size_t kLoreEntriesMax = 1000;
inline constexpr size_t kLoreKeysMax = 64;  // of an entry
inline constexpr size_t kLoreKeyBytesMax = 200;
inline constexpr size_t kLateTextBytesMax = 16u << 10;  // of an entry, or another text of its kind
inline constexpr size_t kPersonaVariablesMax = 64;
inline constexpr int64_t kLoreDepthMax = 1000;

enum class LorePlace : uint8_t {
  kLate,        // before the user's last message, or farther up: `depth`
  kEarly,       // behind the card, before the conversation
  kBeforeCard,  // of an entry that is always there: in the shared text, which all users have
  kAfterCard,
};

enum class SecondaryKeys : uint8_t { kAny, kAll, kNotAny, kNotAll };

struct LoreEntry {
  std::string field;  // "lore[3]": its place in the definition, for errors
  std::vector<std::string> keys;
  std::vector<std::string> secondary_keys;  // looked at once a key is there; none: not
  SecondaryKeys secondary = SecondaryKeys::kAny;
  bool constant = false;  // is there without a key
  bool case_sensitive = false;
  bool whole_words = true;
  LorePlace place = LorePlace::kLate;
  int64_t depth = 1;       // messages from the user's last one on, itself included, that come behind it
  int64_t order = 100;     // of those at one place: the higher, the later
  int64_t importance = 0;  // of those that have no room together, the lower goes first
  std::string content;

  bool is_shared() const { return place == LorePlace::kBeforeCard || place == LorePlace::kAfterCard; }
};

struct PersonaDefinition {
  std::string character;  // {{char}}; empty: the persona's name
  std::string card;
  std::string examples;
  std::vector<LoreEntry> lore;
  int64_t lore_scan_messages = 4;  // of the conversation's last ones, keys are looked for in
  bool lore_recursive = false;     // also in the entries that are there
  int64_t lore_bytes = 16'384;     // of entries in one prompt
  std::string post_history;
  std::optional<std::string> user_note;  // none: the default
  bool each_user_in_card = false;        // {{user}} and variables in the card are the request's
  std::string user_word = "User";        // else {{user}} in it
  PersonaVariables variables;            // values of those that a request does not send
  std::vector<std::string> greetings;    // by which a conversation may begin
  std::vector<std::string> warnings;     // of what is not as its author may expect
};

}  // namespace troupe
