// The tokenizer's stream holds tokens back until they are text; text_ holds text back until no stop string
// can begin in it. What counts as the match is decided by completion: the stop string that ends first wins
// (of those that end together, the one that began first). So the answer is the same however tokens cut the
// text.

#include "worker/text/detokenizer.h"

#include <algorithm>

#include "worker/text/unicode.h"

namespace troupe {
namespace {

struct StopMatch {
  size_t begin = std::string::npos;
  size_t end = std::string::npos;
};

StopMatch first_completed(const std::string& text, const std::vector<std::string>& stop_strings) {
  StopMatch best;
  for (const std::string& stop : stop_strings) {
    size_t begin = text.find(stop);
    if (begin == std::string::npos) continue;
    StopMatch match{begin, begin + stop.size()};
    if (match.end < best.end || (match.end == best.end && match.begin < best.begin)) best = match;
  }
  return best;
}

// How many bytes at the end of text may be the start of a stop string.
size_t undecided_tail(std::string_view text, const std::vector<std::string>& stop_strings) {
  size_t longest = 0;
  for (const std::string& stop : stop_strings) {
    size_t size = std::min(text.size(), stop.size() - 1);
    for (; size > longest; --size) {
      if (text.substr(text.size() - size) == std::string_view(stop).substr(0, size)) longest = size;
    }
  }
  return longest;
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer* tokenizer, std::vector<std::string> stop_strings)
    : Detokenizer(tokenizer, std::move(stop_strings), Options()) {}

Detokenizer::Detokenizer(const Tokenizer* tokenizer, std::vector<std::string> stop_strings,
                         const Options& options)
    : tokens_(tokenizer->stream(/*skip_special=*/true, options.at_start)),
      stop_strings_(std::move(stop_strings)),
      keeps_offsets_(options.keeps_offsets) {
  std::erase_if(stop_strings_, [](const std::string& stop) { return stop.empty(); });
}

std::string Detokenizer::push(int32_t id) {
  if (stopped_) return {};
  if (keeps_offsets_) held_.push_back({made_bytes_, made_chars_});
  add_text(tokens_->push(id));
  return release(false);
}

std::string Detokenizer::finish() {
  if (stopped_) return {};
  add_text(tokens_->finish());
  for (HeldToken& token : held_) {
    if (token.end_bytes < 0) token.end_bytes = made_bytes_;
  }
  return release(true);
}

std::string Detokenizer::release(bool at_end) {
  StopMatch match = first_completed(text_, stop_strings_);
  if (match.begin != std::string::npos) {
    stopped_ = true;
    std::string before = text_.substr(0, match.begin);
    if (keeps_offsets_) note_returned_text(before.size(), /*at_stop=*/true);
    text_.clear();
    return before;
  }
  size_t kept = at_end ? 0 : undecided_tail(text_, stop_strings_);
  std::string safe = text_.substr(0, text_.size() - kept);
  text_.erase(0, safe.size());
  if (keeps_offsets_) note_returned_text(safe.size(), /*at_stop=*/false);
  return safe;
}

// Tokens that were waiting did so for the first character that comes now; the last one may have brought more
// than that, and may wait itself.
void Detokenizer::add_text(const std::string& made) {
  text_ += made;
  if (!keeps_offsets_) return;
  const int64_t old_bytes = made_bytes_;
  made_bytes_ += static_cast<int64_t>(made.size());
  made_chars_ += static_cast<int64_t>(count_code_points(made));
  const bool holds_back = tokens_->holds_back();
  if (made.empty() && holds_back) return;
  for (size_t i = held_.size(); i-- > 0 && held_[i].end_bytes < 0;) {
    const bool is_last = i + 1 == held_.size();
    if (!is_last) {
      held_[i].end_bytes = std::min(old_bytes + 1, made_bytes_);
    } else if (!holds_back) {
      held_[i].end_bytes = made_bytes_;
    }
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
