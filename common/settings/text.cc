#include "common/settings/text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/json/dom.h"

namespace troupe {

namespace {

constexpr size_t kSuggestBytesMax = 64;

// Levenshtein distance of two short words.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

std::string replaced(std::string_view text, char from, char to) {
  std::string out(text);
  std::replace(out.begin(), out.end(), from, to);
  return out;
}

}  // namespace

std::string clip_key(std::string_view key) {
  return clip_text(key, 80);
}

std::string quoted(std::string_view text) {
  return absl::StrCat("'", clip_text(text, 80), "'");
}

std::string number_text(double number) {
  if (number == std::floor(number) && std::abs(number) < 9e15)
    return absl::StrCat(static_cast<int64_t>(number));
  return absl::StrCat(number);
}

std::string to_flag(std::string_view key) {
  return replaced(key, '_', '-');
}

std::string to_key(std::string_view flag) {
  return replaced(flag, '-', '_');
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates,
                         std::string_view prefix) {
  if (word.size() > kSuggestBytesMax) return {};
  const std::string* nearest = nullptr;
  size_t best = std::max<size_t>(2, word.size() / 3) + 1;  // what is further away is another word
  for (const std::string& candidate : candidates) {
    // The last part alone also counts: a key put into the wrong group is a common slip.
    const std::string_view tail = std::string_view(candidate).substr(candidate.rfind('.') + 1);
    const size_t distance = tail == word ? 1 : edit_distance(word, candidate);
    if (distance >= best) continue;
    best = distance;
    nearest = &candidate;
  }
  if (nearest == nullptr) return {};
  return absl::StrCat("; did you mean '", absl::string_view(prefix.data(), prefix.size()), *nearest, "'?");
}

}  // namespace troupe
