#include "gateway/route/key/prefix_key.h"

#include <algorithm>
#include <span>

namespace troupe::route {
namespace {

// Texts longer than this are linked by their digest: they are hashed in place. (To follow its parent in one
// piece of memory a text would have to be copied, and read again while the copy is still on its way to the
// cache: 190 ns more for 400 bytes.)
constexpr size_t kInPlaceBytes = 64;
constexpr uint64_t kDigestTag = 0x100;

// Each part is a link of its own, so no separators are needed, and its kind is mixed into the parent: no two
// different requests feed the chain the same.
Hash128 link(Hash128 parent, uint8_t tag, std::string_view text) {
  if (text.size() <= kInPlaceBytes) return chain_hash(Hash128{parent.hi, parent.lo ^ tag}, text);
  return chain_hash(Hash128{parent.hi, parent.lo ^ tag ^ kDigestTag}, hash_bytes(text));
}

// Distinguishes a chat, a prompt and a session after the model and the salt.
enum Tag : uint8_t {
  kModel = 1,
  kSalt,
  kTools,
  kDocuments,
  kMessage = 16,
  kExtra = 32,
  kChunk = 33,
  kChunkText,
  kSession = 48
};

// Texts are compared within one model and salt only.
Hash128 root_of(const GenerateRequest& request) {
  const Hash128 root = link({}, kModel, request.model);
  return request.cache_salt.empty() ? root : link(root, kSalt, request.cache_salt);
}

Hash128 message_link(Hash128 parent, const ChatMessage& message) {
  // Most templates know `developer` as `system`: a persona that is sent as either is one.
  const Role role = message.role == Role::kDeveloper ? Role::kSystem : message.role;
  const auto role_tag = static_cast<uint8_t>(kMessage + static_cast<uint8_t>(role));
  const Hash128 text = link(parent, role_tag, message.content);
  return message.extra_json.empty() ? text : link(text, kExtra, message.extra_json);
}

// Constructed in place: a copy would load what was just stored in parts, and stall on store forwarding.
void add_anchor(PrefixKey& key, Hash128 chain, size_t bytes) {
  Anchor& anchor = key.anchors.emplace_back();
  anchor.hash = chain;
  anchor.bytes = bytes;
}

void key_of_messages(const GenerateRequest& request, Hash128 root, size_t persona_messages, PrefixKey& key) {
  Hash128 chain = request.tools_json.empty() ? root : link(root, kTools, request.tools_json);
  if (!request.documents_json.empty()) chain = link(chain, kDocuments, request.documents_json);
  size_t bytes = request.tools_json.size() + request.documents_json.size();
  bool in_prefix = true;
  const size_t links = std::min(request.messages.size(), kAnchorsMax);
  key.anchors.reserve(links);
  for (size_t i = 0; i < links; ++i) {
    const ChatMessage& message = request.messages[i];
    if (in_prefix && (persona_messages > 0 ? i == persona_messages : message.role == Role::kUser)) {
      in_prefix = false;
      if (i > 0) key.set = chain;
      key.prefix_messages = static_cast<int32_t>(i);
      key.prefix_bytes = i > 0 ? bytes : 0;
      key.session_source = SessionSource::kFirstTurn;
    }
    chain = message_link(chain, message);
    bytes += message.content.size() + message.extra_json.size();
    add_anchor(key, chain, bytes);
  }
  key.prompt_bytes = bytes;
  key.chat = true;
  const bool past_turn = std::any_of(request.messages.begin() + key.prefix_messages, request.messages.end(),
                                     [](const ChatMessage& m) { return m.role == Role::kAssistant; });
  if (past_turn && key.anchors.size() > 1) key.history_bytes = key.anchors[key.anchors.size() - 2].bytes;
  for (size_t i = links; i < request.messages.size(); ++i) {
    key.prompt_bytes += request.messages[i].content.size() + request.messages[i].extra_json.size();
  }
  if (in_prefix) {  // no user turn: the whole prompt is shared text
    key.set = chain;
    key.prefix_messages = static_cast<int32_t>(links);
    key.prefix_bytes = bytes;
  }
  key.guessed_anchors = key.prefix_messages;
}

std::string_view bytes_of(const GenerateRequest::Prompt& prompt) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
  const auto& ids = std::get<std::vector<int32_t>>(prompt);
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)};
}

void key_of_prompt(const GenerateRequest& request, Hash128 root, PrefixKey& key) {
  const std::string_view prompt = bytes_of(request.prompt);  // a list is routed by its first, one request
  key.prompt_bytes = prompt.size();
  for (const auto& more : request.more_prompts) key.prompt_bytes += bytes_of(more).size();
  // Text and token ids may spell the same bytes: they never share a chain.
  Hash128 chain = link(root, kChunk, std::holds_alternative<std::string>(request.prompt) ? "t" : "i");
  size_t at = 0;
  while (key.anchors.size() < kAnchorsMax) {
    const size_t bytes = prompt_chunk_bytes(at);
    if (prompt.size() - at < bytes) break;
    chain = link(chain, kChunkText, prompt.substr(at, bytes));
    at += bytes;
    add_anchor(key, chain, at);
    if (at != kPromptGuessBytes) continue;
    key.set = chain;
    key.prefix_bytes = at;
    key.guessed_anchors = static_cast<int32_t>(key.anchors.size());
  }
}

}  // namespace

Hash128 first_turn_session(const Hash128& anchor) {
  return link(anchor, kSession, "");
}

PrefixKey make_prefix_key(const GenerateRequest& request, std::string_view session_id,
                          size_t persona_messages) {
  PrefixKey key;
  const Hash128 root = root_of(request);
  if (request.kind == GenerateRequest::Kind::kChat) {
    key_of_messages(request, root, persona_messages, key);
  } else {
    key_of_prompt(request, root, key);
  }
  const std::pair<SessionSource, std::string_view> names[] = {
      {SessionSource::kHeader, session_id},
      {SessionSource::kPromptCacheKey, request.prompt_cache_key},
      {SessionSource::kUser, request.user},
  };
  for (const auto& [source, id] : names) {
    if (id.empty()) continue;
    key.session = link(root, static_cast<uint8_t>(kSession + static_cast<uint8_t>(source)), id);
    key.session_source = source;
    return key;
  }
  if (key.session_source == SessionSource::kFirstTurn) {
    key.session = first_turn_session(key.anchors[static_cast<size_t>(key.prefix_messages)].hash);
  }
  return key;
}

}  // namespace troupe::route
