#include "worker/text/final_words.h"

#include <algorithm>

#include "worker/text/own_mark.h"

namespace troupe {
namespace {

constexpr std::string_view kTrimmed = " \t\r\n\v\f";

size_t common_suffix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first - a.rbegin());
}

bool is_space(std::string_view text) {
  return text.find_first_not_of(kTrimmed) == std::string_view::npos;
}

constexpr size_t kMarkerBytesMax = 64;

bool is_marker(std::string_view text) {
  return text.size() > 2 && text.find_first_of(kTrimmed) == std::string_view::npos &&
         ((text.front() == '<' && text.back() == '>') || (text.front() == '[' && text.back() == ']'));
}
bool is_closing(std::string_view marker) {
  return marker[1] == '/';
}
std::string closing_of(std::string_view marker) {
  return std::string(1, marker.front()) + "/" + std::string(marker.substr(1));
}

// Nor with the mark of a template's own token behind it.
std::string_view without_leading_space(std::string_view text) {
  text = text.substr(std::min(text.find_first_not_of(kTrimmed), text.size()));
  if (text.starts_with(kOwnMark)) text.remove_prefix(kOwnMark.size());
  return text;
}

// "<think>" of "\n<think> hm", or nothing.
std::string_view leading_marker(std::string_view text) {
  text = without_leading_space(text).substr(0, kMarkerBytesMax);
  const size_t end = text.find_first_of(">]");
  const std::string_view marker = text.substr(0, end == std::string_view::npos ? 0 : end + 1);
  return is_marker(marker) ? marker : std::string_view();
}

// "<think>\n" of "… <think>\n", with its mark, or nothing; no closing one.
std::string_view trailing_opener(std::string_view text) {
  const std::string_view trimmed = text.substr(0, text.find_last_not_of(kTrimmed) + 1);
  const size_t begin = trimmed.find_last_of("<[");
  if (begin == std::string_view::npos || trimmed.size() - begin > kMarkerBytesMax) return {};
  const std::string_view marker = trimmed.substr(begin);
  if (!is_marker(marker) || is_closing(marker)) return {};
  const bool is_marked = text.substr(0, begin).ends_with(kOwnMark);
  return text.substr(is_marked ? begin - kOwnMark.size() : begin);
}

// `text` behind an opener that the turn begins with.
std::string_view without_opener(std::string_view text, std::string_view opener) {
  const std::string_view marker = leading_marker(opener);
  if (marker.empty() || leading_marker(text) != marker) return text;
  text = without_leading_space(text).substr(marker.size());
  const std::string_view space = without_leading_space(opener).substr(marker.size());
  const auto shared = std::mismatch(text.begin(), text.end(), space.begin(), space.end()).first;
  return text.substr(static_cast<size_t>(shared - text.begin()));
}

// Whether a turn begins with the text's thought in another form, with another one, or without it.
bool changes_thought(std::string_view turn, std::string_view text) {
  const std::string_view marker = leading_marker(text);
  if (marker.empty() || is_closing(marker) || turn.starts_with(text)) return false;
  const std::string closing = closing_of(marker);
  if (leading_marker(turn) == marker) return turn.find(closing) != std::string_view::npos;
  const size_t end = text.rfind(closing);
  if (end == std::string_view::npos) return false;
  std::string words(without_leading_space(text.substr(end + closing.size())));
  words += kFinalTag.substr(0, kFinalTag.size() - 1);
  return without_leading_space(turn).starts_with(words);
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

std::optional<ContinuedMessage> as_generated(std::string_view rendered, std::string_view opened,
                                             std::string_view text) {
  const std::string_view opener = trailing_opener(opened);
  const std::string_view header = opened.substr(0, opened.size() - opener.size());
  if (opened.empty() || !rendered.starts_with(header)) return std::nullopt;
  const bool is_opened = rendered.starts_with(opened);
  const std::string_view turn = rendered.substr(is_opened ? opened.size() : header.size());
  const std::string_view begins = leading_marker(turn);
  bool changes_it = is_opened && changes_thought(turn, text);
  if (!opener.empty()) {
    const std::string_view marker = leading_marker(opener);
    const std::string closing = closing_of(marker);
    changes_it |= text.find(closing) != std::string_view::npos ||  // it may leave the thought out
                  (is_opened ? begins == closing : begins != marker);
  }
  if (!changes_it) return std::nullopt;
  return ContinuedMessage{std::string(opened), std::string(without_opener(text, opener))};
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
