// The tokenizer's stream holds tokens back until they are text; text_ holds text back until no stop string
// can begin in it. The stop string that is completed first wins (of those that end together, the one that
// began first), so the answer does not depend on how tokens cut the text.

#include "worker/text/tokenizer/detokenizer.h"

#include <algorithm>

#include "worker/text/unicode.h"

namespace troupe {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Place {
  int64_t bytes = 0, chars = 0;
};

// Maps every waiting byte to its place in the text made of them (a byte within a character to that
// character's start), followed by the end. Invalid bytes became one U+FFFD together, or one each.
std::vector<Place> places_of(std::string_view waited, std::string_view made) {
  std::vector<Place> places;
  Place at;
  while (places.size() < waited.size()) {
    const std::string_view rest = waited.substr(places.size());
    const std::string_view text = made.substr(static_cast<size_t>(at.bytes));
    const std::string_view character = text.substr(0, text.empty() ? 0 : first_utf8_part(text).size);
    size_t count = 1;
    const bool is_lost = character == kReplacement && !rest.starts_with(kReplacement);
    if (is_lost) {
      const bool one_each = text.substr(character.size()).starts_with(kReplacement);
      count = one_each ? 1 : first_utf8_part(rest).size;
    } else if (rest.starts_with(character)) {
      count = std::max<size_t>(character.size(), 1);
    } else {
      // The character continues with the next token's bytes.
      places.resize(waited.size(), at);
      break;
    }
    places.resize(places.size() + std::min(count, rest.size()), at);
    at.bytes += static_cast<int64_t>(character.size());
    at.chars += character.empty() ? 0 : 1;
  }
  places.push_back(at);
  return places;
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer* tokenizer, const std::vector<std::string>& stop_strings)
    : Detokenizer(tokenizer, stop_strings, Options()) {}

Detokenizer::Detokenizer(const Tokenizer* tokenizer, const std::vector<std::string>& stop_strings,
                         const Options& options)
    : tokenizer_(tokenizer),
      shown_special_(options.shown_special),
      tokens_(tokenizer->stream(/*skip_special=*/shown_special_ == nullptr, options.at_start)),
      stops_(stop_strings),
      keeps_offsets_(options.keeps_offsets) {}

std::string Detokenizer::push(int32_t id) {
  if (stopped_) return {};
  if (keeps_offsets_) held_.push_back({.waits_from = waiting_.size()});
  if (is_shown(id)) {
    add_text(tokens_->push(id), tokenizer_->token_bytes(id, /*skip_special=*/shown_special_ == nullptr));
  } else {
    add_text({}, {});
  }
  return release(false);
}

// Without a list the stream itself leaves special tokens out.
bool Detokenizer::is_shown(int32_t id) const {
  return shown_special_ == nullptr || !tokenizer_->is_special(id) ||
         std::binary_search(shown_special_->begin(), shown_special_->end(), id);
}

std::string Detokenizer::finish() {
  if (stopped_) return {};
  add_text(tokens_->finish(/*keeps_cut_character=*/false), {});
  return release(true);
}

std::string Detokenizer::release(bool at_end) {
  while (matched_ < text_.size()) {
    const size_t size = stops_.push(text_[matched_++]);
    if (size == 0) continue;
    stopped_ = true;
    std::string before = text_.substr(0, matched_ - size);
    if (keeps_offsets_) note_returned_text(before.size(), /*at_stop=*/true);
    text_ = text_.substr(matched_ - size, size);
    return before;
  }
  const size_t kept = at_end ? 0 : stops_.undecided();
  std::string safe = text_.substr(0, text_.size() - kept);
  text_.erase(0, safe.size());
  matched_ = text_.size();
  if (keeps_offsets_) note_returned_text(safe.size(), /*at_stop=*/false);
  return safe;
}

// `last_bytes`: those of the token just pushed; empty at the end of the stream.
void Detokenizer::add_text(const std::string& made, std::string_view last_bytes) {
  text_ += made;
  if (!keeps_offsets_) return;
  const bool holds_back = tokens_->holds_back();
  if (made.empty() && holds_back) {
    waiting_ += last_bytes;
    return;
  }
  place_waiting(made);
  made_bytes_ += static_cast<int64_t>(made.size());
  made_chars_ += static_cast<int64_t>(count_code_points(made));
  waiting_.clear();
  if (held_.empty() || held_.back().end_bytes >= 0) return;
  if (holds_back) {
    std::string text;
    waiting_ = last_bytes;
    take_valid_utf8(waiting_, text, /*at_end=*/false);
    held_.back().waits_from = std::string::npos;
  } else {
    held_.back().end_bytes = made_bytes_;
  }
}

// The waiting tokens' text is in `made`, and the last token, which may still wait, begins after it.
void Detokenizer::place_waiting(std::string_view made) {
  const std::vector<Place> places = places_of(waiting_, made);
  const auto first_byte_end = [&made](const Place& place) {
    return std::min(place.bytes + 1, static_cast<int64_t>(made.size()));
  };
  size_t end = waiting_.size();
  for (size_t i = held_.size(); i-- > 0 && held_[i].end_bytes < 0;) {
    HeldToken& token = held_[i];
    const bool is_placed = token.waits_from == std::string::npos;
    const size_t begin = is_placed ? 0 : token.waits_from;
    if (!is_placed) {
      token.begin_bytes = made_bytes_ + places[begin].bytes;
      token.begin_chars = made_chars_ + places[begin].chars;
    }
    // A character is returned whole once its first byte is; one that the end cuts off has none.
    const bool is_last = i + 1 == held_.size();
    if (!is_last)
      token.end_bytes = end > begin ? made_bytes_ + first_byte_end(places[end - 1]) : token.begin_bytes;
    end = begin;
  }
}

void Detokenizer::note_returned_text(size_t size, bool at_stop) {
  returned_bytes_ += static_cast<int64_t>(size);
  while (!held_.empty()) {
    const HeldToken& token = held_.front();
    const bool is_out = token.end_bytes >= 0 && token.end_bytes <= returned_bytes_;
    const bool is_cut = at_stop && token.begin_bytes < returned_bytes_;
    if (!is_out && !is_cut) break;
    offsets_.push_back(token.begin_chars);
    held_.pop_front();
  }
}

}  // namespace troupe
