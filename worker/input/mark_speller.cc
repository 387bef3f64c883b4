#include "worker/input/mark_speller.h"

#include "common/grammar/tokens/vocabulary.h"

namespace troupe {

std::string MarkSpeller::spell(std::string_view text) {
  std::string spelled;
  size_t at = 0;
  for (const TokenPlace& place : tokenizer_->places_of_special(text)) {
    if (place.begin < at || !tokenizer_->is_special(place.id)) continue;
    spelled += text.substr(at, place.begin - at);
    spelled += grammar::mark_text(tokenizer_->token_bytes(place.id, /*skip_special=*/false));
    tokens_.push_back(place.id);
    at = place.end;
  }
  return spelled + std::string(text.substr(at));
}

std::vector<std::string> MarkSpeller::spell_all(const std::vector<std::string_view>& texts) {
  std::vector<std::string> spelled;
  for (const std::string_view text : texts) spelled.push_back(spell(text));
  return spelled;
}

bool MarkSpeller::has_special(std::string_view token) const {
  const auto id = tokenizer_->token_to_id(token);
  return id && tokenizer_->is_special(*id);
}

}  // namespace troupe
