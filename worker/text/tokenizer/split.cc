#include "worker/text/tokenizer/split.h"

#include <algorithm>

namespace troupe {
namespace {

// A match joins the stretch before it, unless that was a match, too.
std::vector<Span> merge_with_previous(const std::vector<Stretch>& stretches) {
  std::vector<Span> spans;
  bool previous_match = false;
  for (const Stretch& stretch : stretches) {
    if (stretch.is_match && !previous_match && !spans.empty()) {
      spans.back().end = stretch.span.end;
    } else {
      spans.push_back(stretch.span);
    }
    previous_match = stretch.is_match;
  }
  return spans;
}

std::vector<Span> merge_with_next(const std::vector<Stretch>& stretches) {
  std::vector<Span> spans;
  bool next_match = false;
  for (auto it = stretches.rbegin(); it != stretches.rend(); ++it) {
    if (it->is_match && !next_match && !spans.empty()) {
      spans.back().begin = it->span.begin;
    } else {
      spans.push_back(it->span);
    }
    next_match = it->is_match;
  }
  std::reverse(spans.begin(), spans.end());
  return spans;
}

// Joins neighbours of one kind into one piece.
std::vector<Span> merge_runs(const std::vector<Stretch>& stretches) {
  std::vector<Span> spans;
  bool previous_match = false;
  for (const Stretch& stretch : stretches) {
    if (stretch.is_match == previous_match && !spans.empty()) {
      spans.back().end = stretch.span.end;
    } else {
      spans.push_back(stretch.span);
    }
    previous_match = stretch.is_match;
  }
  return spans;
}

}  // namespace

std::optional<SplitBehavior> split_behavior(std::string_view name) {
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return std::nullopt;
}

std::vector<Stretch> cover(const std::vector<Span>& matches, size_t size) {
  std::vector<Stretch> stretches;
  stretches.reserve(matches.size() + 1);
  size_t previous = 0;
  for (Span match : matches) {
    if (previous != match.begin) stretches.push_back({{previous, match.begin}, false});
    stretches.push_back({match, true});
    previous = match.end;
  }
  if (previous != size) stretches.push_back({{previous, size}, false});
  return stretches;
}

std::vector<Span> split_spans(const std::vector<Stretch>& stretches, SplitBehavior behavior) {
  if (behavior == SplitBehavior::kMergedWithPrevious) return merge_with_previous(stretches);
  if (behavior == SplitBehavior::kMergedWithNext) return merge_with_next(stretches);
  if (behavior == SplitBehavior::kContiguous) return merge_runs(stretches);
  std::vector<Span> spans;
  spans.reserve(stretches.size());
  for (const Stretch& stretch : stretches) {
    if (behavior == SplitBehavior::kIsolated || !stretch.is_match) spans.push_back(stretch.span);
  }
  return spans;
}

}  // namespace troupe
