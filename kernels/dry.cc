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

// Lengths beyond allowed_length + this have its penalty. (A base of 1 has the same for all.)
double exponent_max(double base) {
  return base > 1.000001 ? std::floor(kLogFloatMax / exact_log(base)) : 0;
}

float penalty_of(const DryParams& params, int32_t length) {
  const double base = double{params.base};
  const double exponent = std::min(double(length - params.allowed_length), exponent_max(base));
  const double amount = double{params.multiplier} * exact_pow(base, exponent);
  return static_cast<float>(std::min(amount, double{FLT_MAX}));
}

}  // namespace

DryBreakers::DryBreakers(const std::vector<std::vector<int32_t>>& sequences) {
  for (const std::vector<int32_t>& sequence : sequences) {
    if (sequence.size() == 1) {
      set(singles_, sequence.front());
    } else {
      heads_.push_back({sequence.front(), static_cast<uint32_t>(tails_.size())});
      tails_.emplace_back(sequence.begin() + 1, sequence.end());
    }
  }
  settle();
}

DryBreakers::DryBreakers(const std::vector<int32_t>& singles, std::vector<Head> heads,
                         std::vector<std::vector<int32_t>> tails)
    : heads_(std::move(heads)), tails_(std::move(tails)) {
  for (const int32_t token : singles) set(singles_, token);
  settle();
}

void DryBreakers::settle() {
  std::sort(heads_.begin(), heads_.end());
  for (const Head& head : heads_) set(begins_, head.token);
  for (const std::vector<int32_t>& tail : tails_) tail_max_ = std::max(tail_max_, tail.size());
}

size_t DryBreakers::match_at(std::span<const int32_t> history, size_t at) const {
  size_t longest = is_breaker(history[at]) ? 1 : 0;
  if (!has(begins_, history[at])) return longest;
  const std::span<const int32_t> behind = history.subspan(at + 1);
  for (auto it = std::lower_bound(heads_.begin(), heads_.end(), Head{history[at], 0});
       it != heads_.end() && it->token == history[at]; ++it) {
    const std::vector<int32_t>& tail = tails_[it->tail];
    const bool fits = tail.size() + 1 > longest && tail.size() <= behind.size();
    if (fits && std::equal(tail.begin(), tail.end(), behind.begin())) longest = tail.size() + 1;
  }
  return longest;
}

size_t DryBreakers::count_behind(std::span<const int32_t> history, size_t count_max) const {
  // One that ends within the last `count_max` begins at most its length before them.
  const size_t looked_at = std::min(history.size(), count_max + tail_max_ + 1);
  for (size_t at = history.size(); at-- > history.size() - looked_at;) {
    if (const size_t length = match_at(history, at); length > 0)
      return std::min(history.size() - at - length, count_max);
  }
  return std::min(history.size(), count_max);
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
  const double length_of_most = params.allowed_length + exponent_max(double{params.base});
  size_t length_max = static_cast<size_t>(std::min(length_of_most, static_cast<double>(history.size())));
  if (params.breakers != nullptr) length_max = params.breakers->count_behind(history, length_max);
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
