#include "worker/input/dry_breakers.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/core/work_limit.h"

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

// Eight bytes each, of every request that has them and of the lists that are kept.
constexpr size_t kHeadsMax = size_t{1} << 18;

struct Breakers {
  std::vector<int32_t> singles;
  std::vector<DryBreakers::Head> heads;
  std::vector<std::vector<int32_t>> tails;
};

Status add_breaker(const Tokenizer& tokenizer, std::string_view text, Breakers& out) {
  // Index in out.tails by bytes that come before; below zero: none.
  std::vector<int64_t> tails(std::min(text.size(), kTextMax), -1);
  for (size_t count = 1; count < tails.size(); ++count) {
    TROUPE_RETURN_IF_ERROR(count_work(1));
    auto ids = tokenizer.encode(text.substr(count), /*add_special=*/false);
    if (!ids.ok() || ids->empty()) continue;  // it would begin within a character
    tails[count] = static_cast<int64_t>(out.tails.size());
    ids->resize(std::min(ids->size(), kTailMax));
    out.tails.push_back(*std::move(ids));
  }
  TROUPE_RETURN_IF_ERROR(count_work(static_cast<size_t>(tokenizer.vocab_size())));
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id, /*skip_special=*/false);
    if (bytes.find(text) != std::string_view::npos) {
      out.singles.push_back(id);
    } else if (const size_t begun = text.size() > 1 ? begun_in(bytes, text) : 0;
               begun > 0 && begun < tails.size() && tails[begun] >= 0) {
      out.heads.push_back({id, static_cast<uint32_t>(tails[begun])});
    }
  }
  if (out.heads.size() <= kHeadsMax) return absl::OkStatus();
  return invalid_argument("too many tokens end as the breakers begin; fewer breakers would do");
}

}  // namespace

StatusOr<DryBreakers> find_breakers(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  Breakers found;
  for (const std::string& text : texts) TROUPE_RETURN_IF_ERROR(add_breaker(tokenizer, text, found));
  TROUPE_RETURN_IF_ERROR(count_work(1));
  return DryBreakers(found.singles, std::move(found.heads), std::move(found.tails));
}

StatusOr<std::shared_ptr<const DryBreakers>> DryBreakerCache::find(const std::vector<std::string>& texts) {
  {
    const MutexLock lock(mutex_);
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.texts == texts; });
    if (found != entries_.end()) {
      std::rotate(entries_.begin(), found, found + 1);
      return entries_.front().breakers;
    }
  }
  TROUPE_ASSIGN_OR_RETURN(DryBreakers found, find_breakers(*tokenizer_, texts));
  auto breakers = std::make_shared<const DryBreakers>(std::move(found));
  const MutexLock lock(mutex_);
  if (entries_.size() == kListsMax) entries_.pop_back();
  entries_.insert(entries_.begin(), {texts, breakers});
  return breakers;
}

}  // namespace troupe
