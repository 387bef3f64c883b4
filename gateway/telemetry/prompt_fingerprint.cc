#include "gateway/telemetry/prompt_fingerprint.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace troupe {

namespace {

constexpr size_t kChunkBytes = 1024;

// Type of the following text, so that no two different prompts feed the chain the same.
enum Tag : uint8_t { kKind = 1, kModel, kSalt, kTools, kChunk, kExtra, kDocuments, kMessage = 16 };

Hash128 link(Hash128 parent, uint8_t tag, std::string_view text) {
  return chain_hash(Hash128{parent.hi, parent.lo ^ tag}, text);
}

class Marker {
 public:
  Marker(PromptFingerprint& out, Hash128 root) : out_(out), chain_(root) {}

  void part(uint8_t tag, std::string_view text, std::string_view extra, bool answer) {
    PromptFingerprint::Part part;
    part.bytes = text.size() + extra.size();
    part.answer = answer;
    chain_.lo ^= tag;
    size_t at = 0;
    for (; at + kGrainBytes <= text.size(); at += kGrainBytes) {
      chain_ = chain_hash(chain_, text.substr(at, kGrainBytes));
      out_.grains.push_back(chain_.lo);
      part.grains += 1;
    }
    chain_ = link(chain_, kExtra, text.substr(at));
    if (!extra.empty()) chain_ = link(chain_, kExtra, extra);
    part.end = chain_;
    out_.parts.push_back(part);
  }

 private:
  PromptFingerprint& out_;
  Hash128 chain_;
};

std::string_view bytes_of(const GenerateRequest& request) {
  if (const auto* text = std::get_if<std::string>(&request.prompt)) return *text;
  const auto& ids = std::get<std::vector<int32_t>>(request.prompt);
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)};
}

}  // namespace

PromptFingerprint prompt_marks(const GenerateRequest& request, Hash128 salt) {
  const bool chat = request.kind == GenerateRequest::Kind::kChat;
  const bool ids = !chat && std::holds_alternative<std::vector<int32_t>>(request.prompt);
  Hash128 root = link(salt, kKind, chat ? "c" : ids ? "i" : "t");
  root = link(root, kModel, request.model);
  root = link(root, kSalt, request.cache_salt);
  PromptFingerprint out;
  Marker marker(out, root);
  if (!request.tools_json.empty()) marker.part(kTools, request.tools_json, {}, false);
  if (!request.documents_json.empty()) marker.part(kDocuments, request.documents_json, {}, false);
  if (!chat) {
    for (std::string_view rest = bytes_of(request); !rest.empty();) {
      marker.part(kChunk, rest.substr(0, kChunkBytes), {}, false);
      rest.remove_prefix(std::min(rest.size(), kChunkBytes));
    }
    return out;
  }
  int32_t turns = 0;
  for (const ChatMessage& message : request.messages) {
    turns += message.role == Role::kUser ? 1 : 0;
    marker.part(static_cast<uint8_t>(kMessage + static_cast<uint8_t>(message.role)), message.content,
                message.extra_json, message.role == Role::kAssistant);
  }
  out.turn = std::max(turns, 1);
  return out;
}

}  // namespace troupe
