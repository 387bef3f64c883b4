#include "kernels/dry.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "kernels/exact_math.h"

namespace troupe {

namespace {

// base^exponent stays below the greatest float.
constexpr double kLogFloatMax = 88.7228391;

void set(std::vector<bool>& ids, int32_t token) {
  const auto place = static_cast<size_t>(token);
  if (place >= ids.size()) ids.resize(place + 1);
  ids[place] = true;
}

float penalty_of(const DryParams& params, int32_t length) {
  const double base = double{params.base};
  double exponent = length - params.allowed_length;
  if (base > 1.000001) exponent = std::min(exponent, std::floor(kLogFloatMax / exact_log(base)));
  const double amount = double{params.multiplier} * exact_pow(base, exponent);
  return static_cast<float>(std::min(amount, double{FLT_MAX}));
}

}  // namespace

DryBreakers::DryBreakers(std::vector<std::vector<int32_t>> sequences) {
  for (std::vector<int32_t>& sequence : sequences) {
    if (sequence.size() == 1) {
      set(singles_, sequence.front());
    } else {
      set(heads_, sequence.front());
      sequences_.push_back(std::move(sequence));
    }
  }
  std::sort(sequences_.begin(), sequences_.end());
}

size_t DryBreakers::match_at(std::span<const int32_t> history, size_t at) const {
  size_t longest = is_breaker(history[at]) ? 1 : 0;
  if (!has(heads_, history[at])) return longest;
  auto it = std::lower_bound(sequences_.begin(), sequences_.end(), std::vector<int32_t>{history[at]});
  for (; it != sequences_.end() && it->front() == history[at]; ++it) {
    const bool fits = it->size() > longest && it->size() <= history.size() - at;
    if (fits && std::equal(it->begin(), it->end(), history.begin() + static_cast<std::ptrdiff_t>(at)))
      longest = it->size();
  }
  return longest;
}

size_t DryBreakers::count_behind(std::span<const int32_t> history) const {
  for (size_t at = history.size(); at-- > 0;) {
    if (const size_t length = match_at(history, at); length > 0) return history.size() - at - length;
  }
  return history.size();
}

// Lengths of the common suffix of the window and of each of its beginnings: the Z-function of the window read
// backwards. [box_begin, box_end) is the match that reaches farthest: within it a length is known from the
// place that it mirrors. Outside, most places differ in their first token and are passed by a search for it.
void DryMatcher::match(std::span<const int32_t> window, int32_t length_max) {
  const auto count = static_cast<int32_t>(window.size());
  const auto at = [&](int32_t place) { return window[static_cast<size_t>(count - 1 - place)]; };
  lengths_.assign(window.size(), 0);
  int32_t box_begin = 0, box_end = 0;
  for (int32_t place = 1; place < count; ++place) {
    int32_t length = 0;
    if (place < box_end) {
      length = std::min(lengths_[static_cast<size_t>(place - box_begin)], box_end - place);
    } else if (at(place) != at(0)) {
      while (place < count && at(place) != at(0)) ++place;
      if (place == count) return;
    }
    if (place + length >= box_end) {
      while (place + length < count && at(length) == at(place + length)) ++length;
      box_begin = place;
      box_end = place + length;
    }
    lengths_[static_cast<size_t>(place)] = length;
    const int32_t counted = std::min(length, length_max);
    if (counted > 0) found_.push_back({at(place - 1), counted, 0});
  }
}

std::span<const DryPenalty> DryMatcher::find(const DryParams& params, std::span<const int32_t> history) {
  found_.clear();
  if (params.range > 0 && static_cast<size_t>(params.range) < history.size())
    history = history.last(static_cast<size_t>(params.range));
  size_t length_max = history.size();
  if (params.breakers != nullptr) length_max = params.breakers->count_behind(history);
  if (length_max < static_cast<size_t>(params.allowed_length)) return {};
  match(history, static_cast<int32_t>(length_max));
  // The longest of each token stays.
  std::erase_if(found_, [&](const DryPenalty& penalty) {
    const bool is_breaker = params.breakers != nullptr && params.breakers->is_breaker(penalty.token);
    return penalty.length < params.allowed_length || is_breaker;
  });
  std::sort(found_.begin(), found_.end(), [](const DryPenalty& a, const DryPenalty& b) {
    return a.token != b.token ? a.token < b.token : a.length > b.length;
  });
  const auto same = [](const DryPenalty& a, const DryPenalty& b) { return a.token == b.token; };
  found_.erase(std::unique(found_.begin(), found_.end(), same), found_.end());
  for (DryPenalty& penalty : found_) penalty.amount = penalty_of(params, penalty.length);
  return found_;
}

}  // namespace troupe
