#include "gateway/route/key/shared_prefix_detector.h"

#include <algorithm>
#include <vector>

namespace troupe::route {
namespace {

constexpr uint32_t kSharedSessions = 3;
constexpr uint16_t kLapseWindows = 6;
constexpr uint32_t kBusy = 512;    // conversations
constexpr uint32_t kEvidence = 8;  // conversations needed to change a state
constexpr double kFollow = 0.9, kFollowNoMore = 0.75;
constexpr double kTrunkCovered = 0.1, kTrunkNoMore = 0.03;
constexpr int64_t kGainBytes = 256;
constexpr double kGainShare = 0.5;  // of the text before it, for text that is not a system message
constexpr double kSlight = 1.0 / 8, kSlightNoMore = 1.0 / 6;
constexpr int64_t kLengthUnit = 64;                     // bytes
constexpr int64_t kPromptLengthMax = int64_t{1} << 22;  // counted; 2^16 such prompts a window fit
constexpr int kGuessLost = -3, kGuessKeptMax = 8;
// A conversation's prompt is extended by its next turn (and by a few more, if repeated): a prompt extended
// more often is not a conversation.
constexpr uint32_t kExtendedMax = 3;
constexpr int64_t kBytesPerToken = 4;

// Keeps all anchors of a short chain, ever fewer of a long one; by position alone, so that every request of
// the same beginning keeps the same ones.
bool kept(size_t anchor) {
  size_t stride = 1;
  for (size_t from = 32; anchor >= from; from = 2 * from + 32) stride *= 2;
  return (anchor + 1) % stride == 0;
}

int64_t length_of(const Anchor& anchor) {
  return anchor.bytes > 0 ? static_cast<int64_t>(anchor.bytes) : anchor.tokens * kBytesPerToken;
}

int64_t prompt_length(const PrefixKey& key) {
  return key.prompt_bytes > 0 ? static_cast<int64_t>(key.prompt_bytes) : key.prompt_tokens * kBytesPerToken;
}

// Text that must follow `length` for the conversations that share it to have a set of their own.
int64_t gain_needed(const PrefixKey& key, int64_t length, size_t last_anchor) {
  if (last_anchor < static_cast<size_t>(key.guessed_anchors)) return kGainBytes;
  return std::max(kGainBytes, static_cast<int64_t>(kGainShare * static_cast<double>(length)));
}

template <typename Count>
void rotate(Count& count, bool next) {
  count.before = next ? count.now : 0;
  count.now = 0;
}

template <typename Entry>
void bring_up(Entry& entry, uint32_t window) {
  if (entry.window == window) return;
  const bool next = entry.window + 1 == window;
  rotate(entry.sessions, next);
  rotate(entry.covered, next);
  rotate(entry.not_seen, next);
  rotate(entry.prompts, next);
  entry.window = window;
}

}  // namespace

SharedPrefixDetector::SharedPrefixDetector(const SharedPrefixDetectorOptions& options)
    : options_(options), entries_(options.anchors_max), known_(options.sessions_max) {}

size_t SharedPrefixDetector::bytes_max() const {
  constexpr size_t kLinks = sizeof(Hash128) + 2 * sizeof(uint32_t);  // per slot
  // per entry of the index, at half load
  constexpr size_t kIndexed = 2 * (sizeof(Hash128) + sizeof(uint64_t));
  return options_.anchors_max * (sizeof(Entry) + kLinks + kIndexed) +
         options_.sessions_max * (sizeof(Known) + kLinks + kIndexed);
}

uint32_t SharedPrefixDetector::window_of(TimePoint now) const {
  return static_cast<uint32_t>(now.time_since_epoch() / options_.window) + 2;  // never a fresh entry's 0
}

SharedPrefixDetector::Path SharedPrefixDetector::path_of(const PrefixKey& key) const {
  Path path;
  for (size_t i = 0; i < key.anchors.size(); ++i) {
    if (!kept(i)) continue;
    const Entry* entry = entries_.find(key.anchors[i].hash);
    if (entry == nullptr) break;
    path.push_back(Step{i, length_of(key.anchors[i]), entry});
  }
  return path;
}

// Counts a conversation that began.
void SharedPrefixDetector::began(TimePoint now) {
  if (busy_since_ == TimePoint{}) busy_since_ = now;
  if (busy_began_ >= kBusy && now >= busy_since_ + options_.window) {
    busy_ += 1;
    busy_began_ = 0;
    busy_since_ = now;
  }
  busy_began_ += 1;
}

bool SharedPrefixDetector::lapsed(const Entry& entry) const {
  return static_cast<uint16_t>(busy_ - entry.used) > kLapseWindows;
}

size_t SharedPrefixDetector::prefix_anchors(const PrefixKey& key, const Path& path) const {
  const auto guessed = static_cast<size_t>(key.guessed_anchors);
  const auto private_from = std::find_if(path.begin(), path.end(), [this](const Step& step) {
    return !step.entry->shared || lapsed(*step.entry);
  });
  const auto shared = static_cast<size_t>(private_from - path.begin());
  if (shared == 0) return guessed;
  size_t end = 0;
  for (size_t i = 1; i < shared; ++i) {
    const Step& fork = path[end];
    const Step& deepest = path[shared - 1];
    const bool parts =
        fork.entry->trunk && deepest.length - fork.length >= gain_needed(key, fork.length, deepest.anchor);
    if (!path[i].entry->followed && !parts) break;
    end = i;
  }
  const Step& last = path[end];
  if (key.chat && last.anchor + 1 < guessed) {  // system messages follow that few conversations have shared
    if (last.entry->guess_kept > kGuessLost) return guessed;
    return last.entry->trunk ? 0 : last.anchor + 1;
  }
  if (last.entry->trunk) return 0;
  if (last.entry->slight) return key.chat ? guessed : 0;
  const int64_t guess_length = guessed > 0 ? length_of(key.anchors[guessed - 1]) : 0;
  const bool beyond_guess = guessed > 0 && last.anchor + 1 >= guessed;
  return beyond_guess && last.length - guess_length < kGainBytes ? guessed : last.anchor + 1;
}

void SharedPrefixDetector::refine(PrefixKey& key) const {
  if (key.anchors.empty()) return;
  key.refined = true;
  const size_t count = prefix_anchors(key, path_of(key));
  const Anchor none;
  const Anchor& end = count > 0 ? key.anchors[count - 1] : none;
  key.set = end.hash;
  key.prefix_bytes = end.bytes;
  key.prefix_tokens = end.tokens;
  if (!key.chat) return;
  key.prefix_messages = static_cast<int32_t>(count);
  if (key.session_source != SessionSource::kFirstTurn) return;
  const size_t turn = std::max(count, static_cast<size_t>(key.guessed_anchors));
  key.session = first_turn_session(key.anchors[std::min(turn, key.anchors.size() - 1)].hash);
}

void SharedPrefixDetector::learn(const PrefixKey& key, TimePoint now) {
  if (key.anchors.empty()) return;
  if (begins(key)) {
    began(now);
    count(key, window_of(now));
  } else {
    see_again(key);
  }
}

// True for the first request of a conversation: by its name where it has one; else, unless it continues from
// the end of another prompt.
bool SharedPrefixDetector::begins(const PrefixKey& key) {
  const bool named = !key.session.is_zero() && key.session_source != SessionSource::kFirstTurn;
  bool known = named && known_.find(key.session) != nullptr;
  const int64_t length = prompt_length(key);
  const size_t last = key.anchors.size() - 1;
  for (size_t i = last + 1; i-- > 0 && !known;) {
    Known* end = known_.find(key.anchors[i].hash);
    if (end == nullptr) continue;
    if (i == last) {
      known = end->length == length;  // the same prompt again (or one as long that differs in its last chunk)
      if (known || end->extended > 0) continue;
    } else {
      known = ++end->extended <= kExtendedMax;
      break;
    }
  }
  if (named) known_.touch(key.session);
  known_.touch(key.anchors[last].hash).length = length;
  // A partly filled last block differs in the next turn.
  if (!key.chat && last > 1 &&
      length_of(key.anchors[last]) - length_of(key.anchors[last - 1]) <
          length_of(key.anchors[last - 1]) - length_of(key.anchors[last - 2]))
    known_.touch(key.anchors[last - 1].hash).length = length;
  return !known;
}

void SharedPrefixDetector::count(const PrefixKey& key, uint32_t window) {
  // The deepest first: of a chain the end is forgotten first. Windows are never 0, so new entries are
  // visible.
  for (size_t i = key.anchors.size(); i-- > 0;) {
    if (kept(i)) entries_.touch(key.anchors[i].hash);
  }
  const Path path = path_of(key);
  std::vector<Entry*> entries;
  for (const Step& step : path) entries.push_back(entries_.find(key.anchors[step.anchor].hash));
  for (size_t i = 0; i < entries.size(); ++i) {
    if (lapsed(*entries[i])) *entries[i] = Entry{};
    entries[i]->used = busy_;
    const bool fresh = entries[i]->window == 0;
    bring_up(*entries[i], window);
    if (fresh && i > 0) entries[i]->not_seen = entries[i - 1]->sessions;
  }
  const int64_t length = std::clamp<int64_t>(prompt_length(key), kLengthUnit, kPromptLengthMax);
  double run = 1;
  size_t shared = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    Entry& entry = *entries[i];
    entry.sessions.now += 1;
    entry.shared = entry.shared || entry.sessions.sum() >= kSharedSessions;
    if (entry.shared && shared == i) shared = i + 1;
    if (i == 0) continue;
    // Conversations that passed the anchor before since this one was first seen.
    const uint32_t seen = entries[i - 1]->sessions.sum() - entry.not_seen.sum();
    run *= static_cast<double>(entry.sessions.sum()) / static_cast<double>(seen);
    if (entry.followed && seen >= kEvidence && run < kFollowNoMore) entry.followed = false;
    if (!entry.followed && entry.sessions.sum() >= kSharedSessions && run >= kFollow) entry.followed = true;
    if (!entry.followed) run = 1;
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    Entry& entry = *entries[i];
    if (i + 1 < shared) {
      const Step& deepest = path[shared - 1];
      if (deepest.length - path[i].length >= gain_needed(key, path[i].length, deepest.anchor))
        cover(entry, key.anchors[path[i + 1].anchor].hash.lo, window);
    }
    entry.prompts.now += static_cast<uint32_t>(length / kLengthUnit);
    judge_weight(entry, path[i].length);
    const double covered =
        static_cast<double>(entry.covered.sum()) / static_cast<double>(entry.sessions.sum());
    const bool two = entry.way_windows[0] + 1 >= window && entry.way_windows[1] + 1 >= window;
    if (two && covered >= kTrunkCovered) entry.trunk = true;
    if (entry.sessions.sum() >= kEvidence && covered < kTrunkNoMore) entry.trunk = false;
  }
}

void SharedPrefixDetector::judge_weight(Entry& entry, int64_t length) {
  if (entry.sessions.sum() < kEvidence) return;
  const double prompts = static_cast<double>(entry.prompts.sum()) * kLengthUnit;
  const double share = static_cast<double>(length) * entry.sessions.sum() / prompts;
  if (share < kSlight) entry.slight = true;
  if (share >= kSlightNoMore) entry.slight = false;
}

void SharedPrefixDetector::cover(Entry& entry, uint64_t way, uint32_t window) {
  entry.covered.now += 1;
  size_t at = entry.ways[0] == way ? 0 : 1;
  if (entry.ways[at] != way) at = entry.way_windows[0] <= entry.way_windows[1] ? 0 : 1;
  entry.ways[at] = way;
  entry.way_windows[at] = window;
}

// A later turn keeps what it uses in memory, and shows whether the first guess lasts from turn to turn (a
// system message with the current time does not).
void SharedPrefixDetector::see_again(const PrefixKey& key) {
  const Path path = path_of(key);
  const auto guessed = static_cast<size_t>(key.guessed_anchors);
  const bool judged = guessed > 1 && kept(guessed - 1);
  const bool lasts = !path.empty() && path.back().anchor + 1 >= guessed;
  for (size_t i = path.size(); i-- > 0;) {
    Entry& entry = entries_.touch(key.anchors[path[i].anchor].hash);
    // The conversation keeps its name: under another one no node would have its set.
    if (!lapsed(entry)) entry.used = busy_;
    if (!judged || path[i].anchor + 1 >= guessed) continue;
    const int kept_now = entry.guess_kept + (lasts ? 1 : -1);
    entry.guess_kept = static_cast<int8_t>(std::clamp(kept_now, -kGuessKeptMax, kGuessKeptMax));
  }
}

}  // namespace troupe::route
