#pragma once

// Roles that a template does not know, or not at a message's place, become ones that it does, so that no
// message's text is lost without a word: `developer` is `system`; a `system` message joins the one at the
// beginning, or the user's turn beside it; a tool's result is the user's. An instruction that is shown with
// the user's last turn alone joins that turn where another one follows it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/api/api.h"

namespace troupe {

enum class RoleUse : uint8_t { kAnywhere, kAtBeginning, kNowhere };

// Its template takes these as they come (ChatTemplate finds out).
struct TemplateTraits {
  bool knows_developer = false;     // else role `developer` is its older name, `system`
  bool wants_parts = false;         // it goes through content as a list of {"type": "text", "text": …}
  bool arguments_are_text = false;  // it writes a call's arguments as they are; else they are a mapping
  // Where it shows messages of these roles.
  RoleUse system = RoleUse::kAnywhere;
  RoleUse developer = RoleUse::kAnywhere;  // where it knows it
  // It shows instructions where the last message is a user's, and otherwise not: they are part of it.
  bool needs_user_last = false;
  bool shows_results = true;        // a tool's, behind an assistant's calls
  bool shows_stray_results = true;  // behind anything else
};

// A message of a template's context, made of these of the request's.
struct TemplateTurn {
  Role role = Role::kUser;
  std::vector<size_t> messages;       // ascending, not empty
  std::optional<size_t> own_message;  // the first that had this role: its other fields are the turn's
};

std::vector<TemplateTurn> template_turns(const std::vector<ChatMessage>& messages,
                                         const TemplateTraits& traits);

// The first message of a role that a template may not know (not user, not assistant) whose text `rendered`
// does not have: templates may drop one in an order of roles that nothing foresaw. Linear; compares a word of
// each, as templates trim, escape and wrap texts.
std::optional<size_t> lost_message(const std::vector<ChatMessage>& messages, std::string_view rendered);

}  // namespace troupe
