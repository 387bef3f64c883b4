#include "common/grammar/tokens/vocabulary.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe::grammar {

static constexpr size_t kTokensMax = 4u << 20;
// Most tokens are in the first band; those in the last are rows of spaces and dashes.
static constexpr size_t kBandTextMax[] = {16, 32, TokenTrie::kTextMax};

StatusOr<std::shared_ptr<const Vocabulary>> Vocabulary::make(std::vector<std::string> texts,
                                                             std::vector<int32_t> end_tokens) {
  if (texts.size() > kTokensMax) return invalid_argument("the vocabulary is too large");
  const std::shared_ptr<Vocabulary> vocabulary(new Vocabulary);
  vocabulary->texts_ = std::move(texts);
  vocabulary->end_tokens_ = std::move(end_tokens);
  std::vector<TokenTrie::Entry> entries;
  for (size_t id = 0; id < vocabulary->texts_.size(); ++id) {
    const std::string& text = vocabulary->texts_[id];
    if (text.size() > TokenTrie::kTextMax)
      return invalid_argument(absl::StrCat("token ", id, " is too long"));
    const auto token = static_cast<int32_t>(id);
    if (!text.empty() && !vocabulary->is_end(token)) entries.push_back({text, token});
  }
  for (const int32_t token : vocabulary->end_tokens_)
    if (token < 0 || static_cast<size_t>(token) >= vocabulary->size())
      return invalid_argument(absl::StrCat("end token ", token, " is not in the vocabulary"));
  size_t begin = 0;
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.text.size() < b.text.size(); });
  for (const size_t text_max : kBandTextMax) {
    size_t end = begin;
    while (end < entries.size() && entries[end].text.size() <= text_max) ++end;
    vocabulary->bands_.emplace_back(std::vector(entries.begin() + begin, entries.begin() + end),
                                    vocabulary->size());
    begin = end;
  }
  return vocabulary;
}

bool Vocabulary::is_end(int32_t token) const {
  return std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end();
}

size_t Vocabulary::memory_bytes() const {
  size_t bytes = 0;
  for (const Band& band : bands_) bytes += band.memory_bytes();
  return bytes;
}

}  // namespace troupe::grammar
