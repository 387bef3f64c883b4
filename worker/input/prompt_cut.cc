#include "worker/input/prompt_cut.h"

#include <algorithm>
#include <string>

namespace troupe {
namespace {

size_t character_at_or_after(std::string_view text, size_t at) {
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  return at;
}

}  // namespace

ApiResult<size_t> prompt_room(int64_t context_count, const std::optional<int64_t>& max_tokens) {
  const int64_t answer = max_tokens.value_or(std::max<int64_t>(context_count / 4, 1));
  if (answer < context_count) return static_cast<size_t>(context_count - answer);
  return ApiError::bad_field("max_tokens", "'max_tokens' must be less than the context's " +
                                               std::to_string(context_count) +
                                               " tokens ('max_context_length', or what fits this model)");
}

std::string_view first_bytes(std::string_view text, int64_t bytes_max) {
  const auto most = static_cast<size_t>(std::max<int64_t>(bytes_max, 0));
  return text.substr(0, character_at_or_after(text, std::min(text.size(), most)));
}

std::string_view last_bytes(std::string_view text, int64_t bytes_max) {
  const auto most = static_cast<size_t>(std::max<int64_t>(bytes_max, 0));
  return text.size() <= most ? text : text.substr(character_at_or_after(text, text.size() - most));
}

ApiResult<std::vector<int32_t>> cut_prompt(std::vector<int32_t> kept, const std::vector<int32_t>& rest,
                                           size_t room, std::string_view field) {
  if (kept.size() >= room) {
    return ApiError::bad_field(field, "the part of the prompt that is to stay has " +
                                          std::to_string(kept.size()) +
                                          " tokens, and the context has room for " + std::to_string(room));
  }
  const size_t count = std::min(rest.size(), room - kept.size());
  kept.insert(kept.end(), rest.end() - static_cast<ptrdiff_t>(count), rest.end());
  return kept;
}

}  // namespace troupe
