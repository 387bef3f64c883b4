#include "worker/text/template_roles.h"

#include <algorithm>

namespace troupe {
namespace {

bool is_instruction(Role role) {
  return role == Role::kSystem || role == Role::kDeveloper;
}

bool has_calls(const ChatMessage& message) {
  return message.role == Role::kAssistant && message.extra_json.find("\"tool_calls\"") != std::string::npos;
}

// Goes through a request's messages; `leading_` as long as they are instructions.
class Mapper {
 public:
  explicit Mapper(const TemplateTraits& traits) : traits_(traits) {}

  // The role in the template's words.
  Role role_of(const ChatMessage& message) {
    leading_ = leading_ && is_instruction(message.role);
    if (message.role != Role::kTool) after_calls_ = has_calls(message);
    if (message.role == Role::kTool) return shows_result() ? Role::kTool : Role::kUser;
    if (!is_instruction(message.role)) return message.role;
    const bool is_developer = message.role == Role::kDeveloper && traits_.knows_developer;
    const RoleUse use = is_developer ? traits_.developer : traits_.system;
    if (use == RoleUse::kNowhere || (use == RoleUse::kAtBeginning && !leading_)) return Role::kUser;
    return is_developer ? Role::kDeveloper : Role::kSystem;
  }

  // Whether a message joins the turn before it.
  bool joins(const TemplateTurn& before, Role role, bool is_own) const {
    if (role == Role::kUser && before.role == Role::kUser) return !is_own || joined_;
    return is_instruction(role) && is_instruction(before.role) &&
           (traits_.system == RoleUse::kAtBeginning || traits_.developer == RoleUse::kAtBeginning);
  }
  void set_joined(bool joined) { joined_ = joined; }

 private:
  bool shows_result() const { return after_calls_ ? traits_.shows_results : traits_.shows_stray_results; }

  const TemplateTraits& traits_;
  bool leading_ = true;
  bool after_calls_ = false;
  bool joined_ = false;  // the turn before has a message that became the user's
};

bool is_word_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
         (byte >= 'A' && byte <= 'Z');
}

// The longest run of letters and digits, so far.
std::string_view longest_word(std::string_view text) {
  constexpr size_t kWordBytesMax = 64;
  std::string_view longest;
  for (size_t begin = 0; begin < text.size() && longest.size() < kWordBytesMax;) {
    size_t end = begin;
    while (end < text.size() && end - begin < kWordBytesMax && is_word_byte(text[end])) ++end;
    if (end - begin > longest.size()) longest = text.substr(begin, end - begin);
    begin = end + 1;
  }
  return longest;
}

// The last user's turn is the one that the answer so far was made with.
void move_instructions_to_last_user(std::vector<TemplateTurn>& turns) {
  const auto is_other = [](const TemplateTurn& turn) { return !is_instruction(turn.role); };
  const auto leading_end = std::find_if(turns.begin(), turns.end(), is_other);
  const auto user = std::find_if(turns.rbegin(), turns.rend(),
                                 [](const TemplateTurn& turn) { return turn.role == Role::kUser; });
  if (leading_end == turns.begin()) return;
  if (user == turns.rend()) {
    for (auto turn = turns.begin(); turn != leading_end; ++turn) *turn = {Role::kUser, turn->messages, {}};
    return;
  }
  std::vector<size_t> messages;
  for (auto turn = turns.begin(); turn != leading_end; ++turn)
    messages.insert(messages.end(), turn->messages.begin(), turn->messages.end());
  user->messages.insert(user->messages.begin(), messages.begin(), messages.end());
  turns.erase(turns.begin(), leading_end);
}

}  // namespace

std::vector<TemplateTurn> template_turns(const std::vector<ChatMessage>& messages,
                                         const TemplateTraits& traits) {
  std::vector<TemplateTurn> turns;
  turns.reserve(messages.size());
  Mapper mapper(traits);
  for (size_t i = 0; i < messages.size(); ++i) {
    const Role role = mapper.role_of(messages[i]);
    const bool is_own = role == messages[i].role || role == Role::kSystem;
    const bool joins = !turns.empty() && mapper.joins(turns.back(), role, is_own);
    mapper.set_joined(joins || !is_own);
    if (!joins) turns.push_back({role, {}, std::nullopt});
    turns.back().messages.push_back(i);
    if (is_own && !turns.back().own_message) turns.back().own_message = i;
  }
  if (traits.needs_user_last && !turns.empty() && turns.back().role != Role::kUser)
    move_instructions_to_last_user(turns);
  return turns;
}

std::optional<size_t> lost_message(const std::vector<ChatMessage>& messages, std::string_view rendered) {
  size_t begins[2] = {};  // of the search: templates keep the order of a role's messages, mostly
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == Role::kUser || messages[i].role == Role::kAssistant) continue;
    size_t& from = begins[messages[i].role == Role::kTool ? 1 : 0];
    const std::string_view word = longest_word(messages[i].content);
    size_t at = rendered.find(word, from);
    if (at == std::string_view::npos) at = rendered.find(word);
    if (at == std::string_view::npos) return i;
    from = at;
  }
  return std::nullopt;
}

}  // namespace troupe
