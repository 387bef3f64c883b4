#include "worker/text/tokenizer/banned_strings.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/core/check.h"
#include "worker/text/unicode.h"

namespace troupe {

namespace {

// Moves the whole characters of `bytes` to `out`, in lower case. Bytes that are none become U+FFFD, as
// clients see them.
void take_lowercase(std::string& bytes, std::string& out) {
  const std::string_view text = bytes;
  size_t taken = 0;
  while (taken < text.size()) {
    const Utf8Part part = first_utf8_part(text.substr(taken));
    if (part.incomplete) break;
    size_t at = taken;
    if (part.valid) {
      append_lowercase(out, next_code_point(text, at));
    } else {
      out += "\xEF\xBF\xBD";
    }
    taken += part.size;
  }
  bytes.erase(0, taken);
}

std::vector<std::string> in_lowercase(const std::vector<std::string>& strings) {
  std::vector<std::string> lower(strings.size());
  for (size_t i = 0; i < strings.size(); ++i) {
    std::string rest = strings[i];
    take_lowercase(rest, lower[i]);
    lower[i] += rest;
  }
  return lower;
}

}  // namespace

BannedStrings::BannedStrings(const Tokenizer* tokenizer, const std::vector<std::string>& strings)
    : tokenizer_(tokenizer), matcher_(in_lowercase(strings)) {}

int64_t BannedStrings::add_text(int32_t token) {
  state_.cut_char += tokenizer_->token_bytes(token, /*skip_special=*/true);
  std::string text;
  take_lowercase(state_.cut_char, text);
  int64_t begin = -1;
  for (const char byte : text) {
    const auto size = static_cast<int64_t>(matcher_.push(byte));
    ++state_.size;
    if (size > 0 && begin < 0) begin = state_.size - size;
  }
  return begin;
}

void BannedStrings::append_sent(int32_t token) {
  TROUPE_CHECK(held_.empty(), "a token that was sent follows one that was not");
  add_text(token);
}

BannedStrings::Verdict BannedStrings::push(int32_t token) {
  Held& drawn = held_.emplace_back();
  drawn.token = token;
  drawn.before = state_;
  drawn.before.matcher = matcher_.state();
  drawn.banned = std::exchange(banned_, {});
  const int64_t begin = add_text(token);
  drawn.end = state_.size + (state_.cut_char.empty() ? 0 : 1);
  if (begin < 0) return {.released = release()};
  const size_t kept = token_of(begin);
  Held& first = held_[kept];
  banned_ = std::move(first.banned);
  banned_.push_back(first.token);
  state_ = std::move(first.before);
  matcher_.go_to(state_.matcher);
  held_.resize(kept);
  return {.released = 0, .rewinds = true, .kept = kept};
}

// The held token that the text at `at` begins in; where that was sent, the first.
size_t BannedStrings::token_of(int64_t at) const {
  const auto behind = std::upper_bound(held_.begin(), held_.end(), at,
                                       [](int64_t a, const Held& held) { return a < held.before.size; });
  auto i = static_cast<size_t>(behind - held_.begin());
  if (i > 0) --i;
  // A character belongs to the token that has its first byte.
  while (i > 0 && held_[i].before.size == at && !held_[i].before.cut_char.empty()) --i;
  return i;
}

size_t BannedStrings::release() {
  const int64_t settled = state_.size - static_cast<int64_t>(matcher_.undecided());
  const auto held = std::find_if(held_.begin(), held_.end(), [&](const Held& h) { return h.end > settled; });
  const auto count = static_cast<size_t>(held - held_.begin());
  held_.erase(held_.begin(), held);
  return count;
}

}  // namespace troupe
