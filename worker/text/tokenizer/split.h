#pragma once

// Cuts a text at the matches of a pattern; the behavior determines what happens to the matches.

#include <optional>
#include <string_view>
#include <vector>

#include "worker/text/tokenizer/regex.h"

namespace troupe {

enum class SplitBehavior : uint8_t { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
std::optional<SplitBehavior> split_behavior(std::string_view name);

// A stretch of the text, and whether it is a match. A list of them covers the whole text.
struct Stretch {
  Span span;
  bool is_match = false;
};

// Fills the gaps between matches (in order, not overlapping) so that the list covers all of `size` bytes.
std::vector<Stretch> cover(const std::vector<Span>& matches, size_t size);
// Returns the resulting pieces, in order; some may be empty.
std::vector<Span> split_spans(const std::vector<Stretch>& stretches, SplitBehavior behavior);

}  // namespace troupe
