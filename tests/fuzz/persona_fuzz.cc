// A PUT's body, whatever it is: refused with its field, or a persona whose card is the same for two users,
// whose record comes back as it was, and that puts a conversation's messages in their order.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/json/json.h"
#include "gateway/persona/record.h"

namespace {

using namespace troupe;

void require(bool holds) {
  if (!holds) std::abort();
}

std::vector<ChatMessage> conversation(std::string_view text) {
  std::vector<ChatMessage> messages(4);
  messages[1].role = Role::kAssistant;
  messages[2].role = Role::kTool;
  for (ChatMessage& message : messages) message.content = text;
  return messages;
}

// The messages that an assembled prompt has of the conversation's, in order.
void check_order(const std::vector<PromptItem>& items, int32_t count) {
  int32_t next = 0;
  for (const PromptItem& item : items) {
    if (item.message != PromptItem::kOwn) require(item.message == next++);
    require(item.message != PromptItem::kOwn || is_valid_utf8(item.text));
  }
  require(next == count);
}

void check(Persona persona, std::string_view text) {
  const PersonaPrompt& prompt = *persona.versions.front().prompt;
  const std::vector<ChatMessage> messages = conversation(text);
  PersonaCall ann, ben;
  ann.user = "Ann";
  ben.user = "Ben";
  auto of_ann = prompt.assemble({messages, false, ann});
  auto of_ben = prompt.assemble({messages, true, ben});
  if (of_ann.ok()) check_order(*of_ann, 4);
  if (of_ben.ok()) check_order(*of_ben, 4);
  if (of_ann.ok() && of_ben.ok() && prompt.shares_card())
    require(of_ann->front().text == of_ben->front().text);
  const std::string record = persona_record_json(persona);
  const auto back = parse_persona_record(record);
  require(back.ok() && persona_record_json(*back) == record);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto body = parse_json(text);
  if (!body.ok() || !body->is_object()) return 0;
  Persona persona;
  persona.name = "mora";
  persona.versions.emplace_back().definition = definition_json(body->get_object());
  auto compiled = compile_versions(persona);
  if (!compiled.ok()) {
    require(compiled.error().http_status == 400 && !compiled.error().param.empty());
    return 0;
  }
  check(std::move(persona), text);
  return 0;
}
