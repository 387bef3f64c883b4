#pragma once

// A published persona, ready to be put around a conversation, in an order that keeps prefixes:
//
//   1 the card: one system message, the same to the byte for all users of a version
//       constant lore before the card, card, constant lore behind it, examples
//   2 the user's own that stays for the conversation: user_note, entries of `position: early`, a greeting
//   3 the conversation, as it came; entries that its last messages call up stand before the user's last
//       message, or as many messages farther up as their depth says
//   4 post_history, behind all but an answer that is to be gone on with
//
// Where several personas speak, the card is the speaker's (PersonaCall::joins_cards: all of theirs, the same
// for every speaker), the others' names stand at 2, and the next speaker's at 4.
//
// A call of a tool and its results are not torn apart. Pure; time is linear in the texts.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/api/api.h"
#include "gateway/persona/definition_reader.h"
#include "gateway/persona/late_text.h"
#include "gateway/persona/lore_matcher.h"

namespace troupe {

// One message of an assembled prompt.
struct PromptItem {
  static constexpr int32_t kOwn = -1;
  int32_t message = kOwn;  // of the conversation, as it came; kOwn: the persona's, with these
  Role role = Role::kSystem;
  std::string text = {};
};

class PersonaPrompt {
 public:
  // The error names the field, or the entry of lore.
  static ApiResult<std::shared_ptr<const PersonaPrompt>> compile(PersonaDefinition definition);

  const PersonaDefinition& definition() const { return definition_; }
  // All users' prompts begin with card().
  bool shares_card() const { return shares_card_; }
  // REQUIRES: shares_card().
  const std::string& card() const { return card_; }
  const std::vector<std::string>& warnings() const { return definition_.warnings; }

  struct Input {
    const std::vector<ChatMessage>& messages;
    bool goes_on = false;  // the last message is an answer's beginning
    const PersonaCall& call;
    // All who speak, this one among them, in one order for all of them; empty: it is alone.
    std::vector<const PersonaPrompt*> members = {};
  };
  // The first item is the card. Errors name the request's field.
  ApiResult<std::vector<PromptItem>> assemble(const Input& input) const;

 private:
  struct Entry {
    size_t index;  // in the definition
    LateText content;
    std::string searched;                      // its content, where others' keys are looked for in it
    std::vector<size_t> keys, secondary_keys;  // of the matcher
  };
  struct Placed {  // an entry in a prompt
    size_t point = 0;
    const Entry* entry = nullptr;
  };
  struct Rendering;

  ApiResult<bool> compile_card();
  ApiResult<bool> add_shared(std::string_view field, std::string_view text, std::string_view title);
  ApiResult<bool> compile_lore();
  ApiResult<bool> compile_late();
  void append_card(std::string& out, Rendering& rendering) const;
  bool is_called(const Entry& entry, const std::vector<bool>& found) const;
  std::vector<const Entry*> called_by(const std::vector<ChatMessage>& messages) const;
  void keep_within_bytes(std::vector<const Entry*>& entries) const;
  std::vector<Placed> place(const Input& input) const;

  PersonaDefinition definition_;
  LateText card_parts_;
  bool shares_card_ = true;
  bool names_user_ = false;  // a shared card does, by user_word
  std::string card_;
  LateText user_note_, post_history_;
  std::vector<LateText> greetings_;
  std::vector<Entry> lore_;  // without those that stand in the card
  size_t key_count_ = 0;
  LoreMatcher matcher_;
};

}  // namespace troupe
