#include "gateway/proxy/persona_assembly.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/json/json.h"
#include "gateway/proxy/json_patch.h"

namespace troupe {

namespace {

// `written`: the client's messages in its body. (One that the parser made of `assistant_prefill` is not
// there, and the worker makes it again.)
std::string messages_json(const std::vector<PromptItem>& items,
                          const std::vector<std::string_view>& written) {
  std::string out = "[";
  for (const PromptItem& item : items) {
    if (item.message >= static_cast<int32_t>(written.size())) continue;
    if (out.size() > 1) out += ',';
    if (item.message != PromptItem::kOwn) {
      out += written[static_cast<size_t>(item.message)];
      continue;
    }
    absl::StrAppend(&out, R"({"role":")", to_absl(role_name(item.role)), R"(","content":)");
    append_json_string(out, item.text);
    out += '}';
  }
  return out + "]";
}

std::vector<ChatMessage> messages_of(std::vector<PromptItem>& items, std::vector<ChatMessage>& conversation) {
  std::vector<ChatMessage> out;
  out.reserve(items.size());
  for (PromptItem& item : items) {
    if (item.message != PromptItem::kOwn) {
      out.push_back(std::move(conversation[static_cast<size_t>(item.message)]));
      continue;
    }
    ChatMessage& message = out.emplace_back();
    message.role = item.role;
    message.content = std::move(item.text);
  }
  return out;
}

// All members, by name, so that joined cards are the same for every speaker; none: the persona is alone.
ApiResult<std::vector<const PersonaPrompt*>> members_of(const PersonaRegistry& personas,
                                                        std::string_view owner, const PersonaCall& call,
                                                        const PersonaPrompt& speaker) {
  std::vector<const PersonaPrompt*> members;
  bool speaks = call.others.empty();
  for (const std::string& name : call.others) {
    if (!speaks && call.name < name) {
      members.push_back(&speaker);
      speaks = true;
    }
    PersonaCall other;
    other.name = name;
    auto chosen = personas.choose(owner, other);
    if (!chosen.ok()) {
      ApiError error = chosen.error();
      error.param = "persona.others";
      return error;
    }
    members.push_back(chosen->version->prompt.get());
  }
  if (!speaks) members.push_back(&speaker);
  return members;
}

// Names the prompt's beginning: the speaker, or with joined cards all members.
std::string beginning_of(const PersonaCall& call) {
  if (!call.joins_cards || call.others.empty()) return call.name;
  std::vector<std::string> names = call.others;
  names.push_back(call.name);
  std::sort(names.begin(), names.end());
  return absl::StrJoin(names, "+");
}

// Lore that comes and goes changes the assembled messages, so the session is not found by their beginning: it
// is the hash of persona, user and first message.
std::string session_of(const PersonaCall& call, const std::vector<ChatMessage>& conversation) {
  const auto first = std::find_if(conversation.begin(), conversation.end(),
                                  [](const ChatMessage& m) { return m.role == Role::kUser; });
  Hash128 session = chain_hash(hash_bytes(beginning_of(call)), call.user.value_or(""));
  if (first != conversation.end()) session = chain_hash(session, std::string_view(first->content));
  return session.hex();
}

}  // namespace

ApiResult<AssembledPersona> assemble_persona(const PersonaAssemblyInput& input, GenerateRequest& parsed) {
  auto call = parse_persona_call(parsed.persona_json);
  if (!call.ok()) return call.error();
  if (input.personas == nullptr) return ApiError::unsupported("persona", "'persona' is not known here");
  const std::string owner = input.client == nullptr ? std::string() : input.client->owner();
  auto chosen = input.personas->choose(owner, *call);
  if (!chosen.ok()) return chosen.error();
  const PersonaPrompt& prompt = *chosen->version->prompt;
  auto members = members_of(*input.personas, owner, *call, prompt);
  if (!members.ok()) return members.error();
  const bool shares_cards = std::all_of(members->begin(), members->end(), [&](const PersonaPrompt* one) {
    return one->shares_card() || !call->joins_cards;
  });
  auto items = prompt.assemble({parsed.messages, parsed.continue_final_message, *call, *std::move(members)});
  if (!items.ok()) return items.error();
  const std::string_view session = input.request.header("x-session-id");
  if (session.empty() && parsed.prompt_cache_key.empty() && parsed.user.empty())
    parsed.prompt_cache_key = session_of(*call, parsed.messages);
  AssembledPersona out;
  out.name = call->name;
  out.label = absl::StrCat(call->name, "@", chosen->version->number);
  out.messages_json = messages_json(*items, array_items(input.request.body, "messages"));
  parsed.messages = messages_of(*items, parsed.messages);
  out.key = route::make_prefix_key(parsed, session, 1);
  if (prompt.shares_card() && shares_cards) input.personas->name_set(out.key.set, beginning_of(*call));
  return out;
}

}  // namespace troupe
