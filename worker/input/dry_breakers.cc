#include "worker/input/dry_breakers.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace troupe {

namespace {

constexpr size_t kTailMax = 20;  // tokens behind the first: no longer breaker is worth its search
constexpr size_t kTextMax = 40;  // bytes of one that spans tokens: koboldcpp's limit

// The length of the longest beginning of `text`, less than all of it, that `bytes` ends with; 0: none.
size_t begun_in(std::string_view bytes, std::string_view text) {
  for (size_t count = std::min(bytes.size(), text.size() - 1); count > 0; --count) {
    if (bytes.substr(bytes.size() - count) == text.substr(0, count)) return count;
  }
  return 0;
}

void add_breaker(const Tokenizer& tokenizer, std::string_view text,
                 std::vector<std::vector<int32_t>>& sequences) {
  std::vector<std::vector<int32_t>> tails(std::min(text.size(), kTextMax));  // by bytes that come before
  for (size_t count = 1; count < tails.size(); ++count) {
    const auto ids = tokenizer.encode(text.substr(count), /*add_special=*/false);
    if (!ids.ok()) continue;  // it would begin within a character
    tails[count] = *ids;
    tails[count].resize(std::min(tails[count].size(), kTailMax));
  }
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id, /*skip_special=*/false);
    if (bytes.find(text) != std::string_view::npos) {
      sequences.push_back({id});
    } else if (const size_t begun = text.size() > 1 ? begun_in(bytes, text) : 0;
               begun > 0 && begun < tails.size() && !tails[begun].empty()) {
      sequences.push_back({id});
      sequences.back().insert(sequences.back().end(), tails[begun].begin(), tails[begun].end());
    }
  }
}

}  // namespace

DryBreakers find_breakers(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  std::vector<std::vector<int32_t>> sequences;
  for (const std::string& text : texts) add_breaker(tokenizer, text, sequences);
  return DryBreakers(std::move(sequences));
}

std::shared_ptr<const DryBreakers> DryBreakerCache::find(const std::vector<std::string>& texts) {
  {
    const MutexLock lock(mutex_);
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.texts == texts; });
    if (found != entries_.end()) {
      std::rotate(entries_.begin(), found, found + 1);
      return entries_.front().breakers;
    }
  }
  auto breakers = std::make_shared<const DryBreakers>(find_breakers(*tokenizer_, texts));
  const MutexLock lock(mutex_);
  if (entries_.size() == kListsMax) entries_.pop_back();
  entries_.insert(entries_.begin(), {texts, breakers});
  return breakers;
}

}  // namespace troupe
