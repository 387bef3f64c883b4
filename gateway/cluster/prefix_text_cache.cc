#include "gateway/cluster/prefix_text_cache.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/json/json.h"

namespace troupe {

namespace {

// The largest text takes this part of the budget.
constexpr size_t kTextShare = 8;
// Bytes of an entry without its text.
constexpr size_t kEntryBytes = 512;

void append_field(std::string_view name, std::string_view json, std::string& out) {
  out += out.size() > 1 ? ",\"" : "\"";
  out += name;
  out += "\":";
  out += json;
}

std::string quoted_json(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

// The content as it came: a text, or several text parts, which a line break joins.
std::string content_json(const ChatMessage& message) {
  if (message.part_bytes.empty()) return quoted_json(message.content);
  std::string out = "[";
  size_t at = 0;
  for (const size_t bytes : message.part_bytes) {
    if (out.size() > 1) out += ',';
    out += "{\"type\":\"text\",\"text\":" + quoted_json(std::string_view(message.content).substr(at, bytes)) +
           "}";
    at += bytes + 1;
  }
  return out + "]";
}

// {"role":…,"content":…, and the object `extra_json`'s fields}
std::string message_json(const ChatMessage& message) {
  std::string out = "{";
  append_field("role", quoted_json(role_name(message.role)), out);
  append_field("content", content_json(message), out);
  if (message.extra_json.size() > 2) {
    out += ',';
    out += std::string_view(message.extra_json).substr(1);
    return out;
  }
  return out + "}";
}

std::string messages_json(std::span<const ChatMessage> messages) {
  std::string out = "[";
  for (const ChatMessage& message : messages) {
    if (out.size() > 1) out += ',';
    out += message_json(message);
  }
  return out + "]";
}

std::string prompt_json(const GenerateRequest& request, size_t bytes) {
  if (const auto* text = std::get_if<std::string>(&request.prompt)) {
    // The hash covers bytes, so it may end within a character.
    while (bytes < text->size() && bytes > 0 && (static_cast<uint8_t>((*text)[bytes]) & 0xc0) == 0x80)
      bytes -= 1;
    return quoted_json(std::string_view(*text).substr(0, bytes));
  }
  const auto& ids = std::get<std::vector<int32_t>>(request.prompt);
  std::string out = "[";
  for (size_t i = 0; i < std::min(ids.size(), bytes / sizeof(int32_t)); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(ids[i]);
  }
  return out + "]";
}

}  // namespace

std::string prefix_body(const GenerateRequest& request, const std::string& model,
                        const route::PrefixKey& key) {
  const bool chat = request.kind == GenerateRequest::Kind::kChat;
  const auto messages = std::min(request.messages.size(), static_cast<size_t>(key.prefix_messages));
  if (key.set.is_zero() || (chat ? messages : key.prefix_bytes) == 0) return "";
  std::string out = "{";
  append_field("model", quoted_json(model), out);
  if (chat) {
    append_field("messages", messages_json({request.messages.data(), messages}), out);
  } else {
    append_field("prompt", prompt_json(request, key.prefix_bytes), out);
  }
  if (!request.tools_json.empty()) append_field("tools", request.tools_json, out);
  if (!request.documents_json.empty()) append_field("documents", request.documents_json, out);
  if (!request.chat_template_kwargs_json.empty())
    append_field("chat_template_kwargs", request.chat_template_kwargs_json, out);
  if (!request.cache_salt.empty()) append_field("cache_salt", quoted_json(request.cache_salt), out);
  return out + "}";
}

bool PrefixTextCache::use(const Hash128& set) {
  const auto found = index_.find(set);
  if (found == index_.end()) return false;
  entries_.splice(entries_.begin(), entries_, found->second);
  return true;
}

void PrefixTextCache::put(const Hash128& set, Text text) {
  const size_t bytes = text.body.size() + text.model.size() + kEntryBytes;
  if (use(set) || bytes > bytes_max_ / kTextShare) return;
  entries_.push_front({set, std::move(text), bytes});
  index_[set] = entries_.begin();
  bytes_ += bytes;
  while (bytes_ > bytes_max_) {
    bytes_ -= entries_.back().bytes;
    index_.erase(entries_.back().set);
    entries_.pop_back();
  }
}

const PrefixTextCache::Text* PrefixTextCache::find(const Hash128& set) const {
  const auto found = index_.find(set);
  return found == index_.end() ? nullptr : &found->second->text;
}

std::vector<Hash128> PrefixTextCache::sets_of(std::string_view model) const {
  std::vector<Hash128> sets;
  for (const Entry& entry : entries_) {
    if (entry.text.model == model) sets.push_back(entry.set);
  }
  return sets;
}

}  // namespace troupe
