#include "worker/text/final_words.h"

#include <algorithm>

namespace troupe {
namespace {

constexpr std::string_view kTrimmed = " \t\r\n\v\f";

size_t common_suffix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first - a.rbegin());
}

bool is_space(std::string_view text) {
  return text.find_first_not_of(kTrimmed) == std::string_view::npos;
}

}  // namespace

GenerateRequest with_final_tag(const GenerateRequest& request) {
  GenerateRequest tagged = request;
  ChatMessage& last = tagged.messages.back();
  last.content += kFinalTag;
  if (!last.part_bytes.empty()) last.part_bytes.back() += kFinalTag.size();
  return tagged;
}

std::string final_text(const GenerateRequest& request, bool in_parts) {
  const ChatMessage& last = request.messages.back();
  if (!in_parts || last.part_bytes.empty()) return last.content;
  std::string text;
  std::string_view rest = last.content;
  for (const size_t bytes : last.part_bytes) {
    text += rest.substr(0, bytes);
    rest.remove_prefix(std::min(bytes + 1, rest.size()));  // and the line break that joins it to the next
  }
  return text;
}

StatusOr<ContinuedMessage> split_final_message(std::string rendered, std::string_view opened,
                                               std::string_view text) {
  const std::string_view tag = kFinalTag.substr(0, kFinalTag.size() - 1);
  const size_t at = rendered.rfind(tag);
  if (at == std::string::npos)
    return invalid_argument("the template changes the last message, so it cannot be gone on with");
  const bool keeps_space = rendered.compare(at, kFinalTag.size(), kFinalTag) == 0;
  rendered.resize(at);
  const size_t opened_size = rendered.starts_with(opened) ? opened.size() : 0;
  const std::string_view turn = std::string_view(rendered).substr(opened_size);
  const size_t shown = common_suffix(turn, text);
  const bool is_shown = is_space(text.substr(0, text.size() - shown));
  if (!is_shown) {
    if (!keeps_space) rendered.resize(rendered.find_last_not_of(kTrimmed) + 1);
    const size_t boundary = opened_size == 0 ? rendered.size() : std::min(opened_size, rendered.size());
    return ContinuedMessage{rendered.substr(0, boundary), rendered.substr(boundary)};
  }
  std::string_view lead = turn.substr(0, turn.size() - shown);
  if (opened_size == 0 || !is_space(lead)) {
    rendered.resize(rendered.size() - shown);
    return ContinuedMessage{std::move(rendered), std::string(text)};
  }
  // An answer begins where the turn opens, so a space that the template writes there ("[/INST] Hello") is the
  // first token's own, unless the template took the answer's away.
  if (shown < text.size()) lead = {};
  std::string words(lead);
  words += text;
  rendered.resize(opened_size);
  return ContinuedMessage{std::move(rendered), std::move(words)};
}

}  // namespace troupe
