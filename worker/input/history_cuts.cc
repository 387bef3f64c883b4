#include "worker/input/history_cuts.h"

#include <algorithm>

#include "common/core/check.h"

namespace troupe {

HistoryCuts::HistoryCuts(std::span<const HistoryMessage> history, int64_t step) {
  TROUPE_CHECK(step >= 1, "a cut is behind the one before it");
  cuts_.push_back({0, 0});
  std::vector<Cut> turns;  // behind the last cut
  for (size_t i = 0; i < history.size(); ++i) {
    const HistoryMessage& message = history[i];
    if (message.begins_turn && i > 0) turns.push_back({i, tokens_});
    if (!turns.empty() && turns.back().tokens_before >= cuts_.back().tokens_before + step) {
      cuts_.push_back(turns.back());
      turns.clear();
    }
    (message.passing ? passing_ : tokens_) += message.tokens;
  }
  cuts_.insert(cuts_.end(), turns.begin(), turns.end());
  const int64_t quarter = std::max<int64_t>(1, step / 4);
  passing_ = (passing_ + quarter - 1) / quarter * quarter;
}

size_t HistoryCuts::first_kept(int64_t room) const {
  const auto fits = [&](const Cut& cut) { return tokens_ - cut.tokens_before + passing_ <= room; };
  const auto cut = std::find_if(cuts_.begin(), cuts_.end(), fits);
  return cut == cuts_.end() ? cuts_.back().message : cut->message;
}

std::optional<size_t> HistoryCuts::next(size_t cut) const {
  const auto behind =
      std::find_if(cuts_.begin(), cuts_.end(), [cut](const Cut& each) { return each.message > cut; });
  if (behind == cuts_.end()) return std::nullopt;
  return behind->message;
}

}  // namespace troupe
