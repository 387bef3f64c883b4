#include "sim/workload.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <queue>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "sim/block_chain.h"
#include "sim/checks.h"
#include "sim/random.h"

namespace troupe::sim {

namespace {

constexpr uint64_t kSystemContent = 1;

Duration seconds(double s) {
  return Duration(std::llround(s * 1e9));
}

struct Persona {
  int32_t tokens = 0;
  int32_t version = 0;
  // System prompt and card of the version that was asked last: most of a prompt, and always the same.
  std::optional<Chain> start;
  int32_t start_version = 0;
};

// Whose starts are kept, at a kilobyte each.
constexpr size_t kStartsMax = 1 << 16;

struct Session {
  uint64_t number = 0;
  int32_t persona = 0, version = 0;
  int32_t card_tokens = 0;
  int32_t turn = 0;              // asked so far
  int32_t turns_left = 1;        // to ask, swipes not counted
  bool swiping = false;          // the next request asks for the last turn again
  uint64_t contents = 0;         // segments made so far
  std::vector<Segment> history;  // user and answer in turn
};

struct Due {
  Duration at;
  uint64_t order;  // breaks ties by age, so that the heap's own order never shows
  int32_t slot;
  bool operator>(const Due& other) const { return at != other.at ? at > other.at : order > other.order; }
};

}  // namespace

Status check_workload(const PersonaWorkload& w) {
  TROUPE_RETURN_IF_ERROR(check_range("personas", w.personas, 1, 10'000'000));
  TROUPE_RETURN_IF_ERROR(check_range("zipf", w.zipf, 0, 10));
  TROUPE_RETURN_IF_ERROR(check_range("card-tokens", w.card_tokens, 1, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("card-sigma", w.card_sigma, 0, 3));
  TROUPE_RETURN_IF_ERROR(check_range("card-tokens-min", w.card_tokens_min, 1, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("card-tokens-max", w.card_tokens_max, w.card_tokens_min, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("system-tokens", w.system_tokens, 0, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("turns", w.turns, 1, 10'000));
  TROUPE_RETURN_IF_ERROR(check_range("think-s", w.think_s, 0, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("answer-s-per-token", w.answer_s_per_token, 0, 100));
  TROUPE_RETURN_IF_ERROR(check_range("user-tokens", w.user_tokens, 1, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("output-tokens", w.output_tokens, 1, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("turn-sigma", w.turn_sigma, 0, 3));
  TROUPE_RETURN_IF_ERROR(check_range("ramp-s", w.ramp_s, 0, 1e8));
  TROUPE_RETURN_IF_ERROR(check_range("rate", w.rate, 1e-6, 1e7));
  TROUPE_RETURN_IF_ERROR(check_range("duration-s", w.duration_s, 0, 1e8));
  TROUPE_RETURN_IF_ERROR(check_range("block-size", w.block_tokens, 1, 65536));
  TROUPE_RETURN_IF_ERROR(check_range("swipe", w.swipe, 0, 0.95));
  TROUPE_RETURN_IF_ERROR(check_range("edits-per-s", w.edits_per_s, 0, 1e6));
  TROUPE_RETURN_IF_ERROR(check_range("drift", w.drift_swaps_per_s, 0, 1e6));
  const double least = w.system_tokens + w.card_tokens_max + 2.0;
  TROUPE_RETURN_IF_ERROR(check_range("context", w.context_tokens, least, 1e8));
  if (w.burst) {
    TROUPE_RETURN_IF_ERROR(check_range("burst times", w.burst->times, 1, 1000));
    if (w.burst->begin < Duration::zero() || w.burst->duration <= Duration::zero())
      return invalid_argument("burst must begin at >= 0 s and last > 0 s");
  }
  if (!w.flash) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(check_range("flash share", w.flash->share, 0.001, 0.99));
  TROUPE_RETURN_IF_ERROR(
      check_range("flash card-tokens", w.flash->card_tokens, 0, w.context_tokens - w.system_tokens - 2.0));
  if (w.flash->begin < Duration::zero() || w.flash->duration <= Duration::zero()) {
    return invalid_argument("flash must begin at >= 0 s and last > 0 s");
  }
  return absl::OkStatus();
}

namespace {

std::string set_of(int32_t persona, int32_t version) {
  return absl::StrCat("p", persona, ".v", version);
}

}  // namespace

uint64_t flash_set(const PersonaWorkload& w) {
  return w.flash ? id_of(set_of(w.personas, 0)) : 0;
}

struct PersonaSource::Impl {
  Impl(const PersonaWorkload& given, uint64_t seed)
      : w(given), draw(seed), zipf(given.personas, given.zipf), chain(given.block_tokens) {
    personas.resize(static_cast<size_t>(w.personas));
    rank_persona.resize(static_cast<size_t>(w.personas));
    for (int32_t i = 0; i < w.personas; ++i) {
      personas[static_cast<size_t>(i)].tokens = draw_card();
      rank_persona[static_cast<size_t>(i)] = i;
    }
    if (w.flash) {
      personas.emplace_back().tokens =
          static_cast<int32_t>(w.flash->card_tokens > 0 ? w.flash->card_tokens : w.card_tokens);
    }
    // A session asks `turns` times, each perhaps again: so many requests it brings.
    const double requests = w.turns / (1 - w.swipe);
    session_gap_s = requests / w.rate;
    if (w.flash) flash_gap_s = session_gap_s * (1 - w.flash->share) / w.flash->share;
    // Sessions between two requests, in the stationary state; met at any turn, for what is left of a
    // geometric is one.
    const double wait_s = w.think_s + w.answer_s_per_token * w.output_tokens;
    const double running = (requests - 1) / session_gap_s * wait_s;
    const int64_t met = std::llround(running);
    for (int64_t i = 0; i < met; ++i) {
      // Met while their users think: what is left of an exponential time is one.
      joining.push_back(seconds(draw.uniform() * w.ramp_s + draw.exponential(wait_s)));
    }
    std::sort(joining.begin(), joining.end(), std::greater<>());
    next_session = next_start(Duration::zero());
    if (w.flash) next_flash = w.flash->begin + seconds(draw.exponential(flash_gap_s));
    next_edit = next_event(Duration::zero(), w.edits_per_s);
    next_swap = next_event(Duration::zero(), w.drift_swaps_per_s);
  }

  int32_t draw_card() {
    const double tokens = draw.lognormal(w.card_tokens, w.card_sigma);
    return static_cast<int32_t>(std::clamp<double>(std::round(tokens), w.card_tokens_min, w.card_tokens_max));
  }
  int32_t draw_length(double mean) {
    const double most = (w.context_tokens - w.system_tokens - w.card_tokens_max) / 2.0;
    return static_cast<int32_t>(
        std::clamp<double>(std::round(draw.lognormal(mean, w.turn_sigma)), 1, std::max(1.0, most)));
  }
  // Poisson of the highest rate, thinned while the rate rises and where no burst is.
  Duration next_start(Duration at) {
    const double most = w.burst ? w.burst->times : 1;
    while (true) {
      at += seconds(draw.exponential(session_gap_s / most));
      const double t = static_cast<double>(at.count()) / 1e9;
      if (w.burst && !(at >= w.burst->begin && at < w.burst->begin + w.burst->duration) &&
          draw.uniform() * most >= 1)
        continue;
      if (t >= w.ramp_s || draw.uniform() * w.ramp_s < t) return at;
    }
  }
  Duration next_event(Duration now, double rate) {
    return rate > 0 ? now + seconds(draw.exponential(1 / rate)) : Duration::max();
  }

  bool next(TraceRequest& out);
  int32_t start_session(Duration at, int32_t persona);
  void meet_session(Duration at);
  void apply_changes(Duration until);
  void ask(Session& session, Duration at, TraceRequest& out);
  void start_prompt(const Session& session);
  void truncate(Session& session, int32_t user_tokens, int32_t output_tokens) const;
  void end_session(int32_t slot);
  static Segment new_segment(Session& session, int32_t tokens) {
    return {mix(session.number + 2, ++session.contents), tokens};
  }

  PersonaWorkload w;
  Draw draw;
  Zipf zipf;
  Chain chain;
  std::vector<Persona> personas;  // a flash crowd's comes last
  std::vector<int32_t> rank_persona;
  std::vector<Session> sessions;
  std::vector<int32_t> free_slots;
  std::vector<Duration> joining;  // when those met in mid-talk come, the first one last
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due;
  uint64_t session_count = 0, due_count = 0;
  double session_gap_s = 0, flash_gap_s = 0;
  Duration next_session{}, next_flash = Duration::max(), next_edit{}, next_swap{};
  int32_t last_persona = 0, last_version = 0;
  uint64_t last_session = 0;
};

// A conversation that has been going on for some turns.
void PersonaSource::Impl::meet_session(Duration at) {
  const int32_t slot = start_session(at, rank_persona[static_cast<size_t>(zipf.draw(draw))]);
  Session& session = sessions[static_cast<size_t>(slot)];
  session.turn = draw.geometric(w.turns);
  for (int32_t turn = 0; turn < std::min(session.turn, w.context_tokens); ++turn) {
    session.history.push_back(new_segment(session, draw_length(w.user_tokens)));
    session.history.push_back(new_segment(session, draw_length(w.output_tokens)));
  }
}

int32_t PersonaSource::Impl::start_session(Duration at, int32_t persona) {
  int32_t slot;
  if (free_slots.empty()) {
    slot = static_cast<int32_t>(sessions.size());
    sessions.emplace_back();
  } else {
    slot = free_slots.back();
    free_slots.pop_back();
  }
  Session& session = sessions[static_cast<size_t>(slot)];
  const Persona& of = personas[static_cast<size_t>(persona)];
  session.number = session_count++;
  session.persona = persona;
  session.version = of.version;
  session.card_tokens = of.tokens;
  session.turns_left = draw.geometric(w.turns);
  session.turn = 0;
  session.swiping = false;
  session.contents = 0;
  session.history.clear();
  due.push({at, due_count++, slot});
  return slot;
}

// Edits and swaps that happen before `until`.
void PersonaSource::Impl::apply_changes(Duration until) {
  while (next_edit <= until) {
    Persona& persona = personas[static_cast<size_t>(draw.below(w.personas))];
    persona.version += 1;
    persona.tokens = draw_card();
    next_edit = next_event(next_edit, w.edits_per_s);
  }
  while (next_swap <= until) {
    std::swap(rank_persona[static_cast<size_t>(draw.below(w.personas))],
              rank_persona[static_cast<size_t>(draw.below(w.personas))]);
    next_swap = next_event(next_swap, w.drift_swaps_per_s);
  }
}

// Drops the oldest turns until what is left, the new turn and its answer fit the context.
void PersonaSource::Impl::truncate(Session& session, int32_t user_tokens, int32_t output_tokens) const {
  int64_t total = int64_t{w.system_tokens} + session.card_tokens + user_tokens + output_tokens;
  for (const Segment& segment : session.history) total += segment.tokens;
  size_t dropped = 0;
  while (total > w.context_tokens && dropped < session.history.size())
    total -= session.history[dropped++].tokens;
  dropped += dropped % 2;  // a user's turn goes with its answer
  session.history.erase(
      session.history.begin(),
      session.history.begin() + static_cast<std::ptrdiff_t>(std::min(dropped, session.history.size())));
}

// The system prompt and the card.
void PersonaSource::Impl::start_prompt(const Session& session) {
  Persona& persona = personas[static_cast<size_t>(session.persona)];
  if (persona.start && persona.start_version == session.version) {
    chain = *persona.start;
    return;
  }
  const uint64_t card =
      mix(static_cast<uint64_t>(session.persona) + 1, static_cast<uint64_t>(session.version) << 32);
  chain.clear();
  chain.append({kSystemContent, w.system_tokens});
  chain.append({card, session.card_tokens});
  if (personas.size() > kStartsMax) return;
  persona.start = chain;
  persona.start_version = session.version;
}

void PersonaSource::Impl::ask(Session& session, Duration at, TraceRequest& out) {
  if (session.swiping) {
    session.history.pop_back();  // the answer that was not liked; its question stays
  } else {
    const int32_t user_tokens = draw_length(w.user_tokens);
    truncate(session, user_tokens, static_cast<int32_t>(w.output_tokens) * 2);
    session.history.push_back(new_segment(session, user_tokens));
    session.turn += 1;
    session.turns_left -= 1;
  }
  start_prompt(session);
  for (const Segment& segment : session.history) chain.append(segment);
  out.at = at;
  out.block_tokens = w.block_tokens;
  out.input_tokens = chain.tokens();
  out.turn = session.turn;
  out.prefix_tokens = w.system_tokens + session.card_tokens;
  out.blocks = chain.full_ids();
  const size_t full = out.blocks.size();
  if (chain.has_open()) out.blocks.push_back(chain.open_id());

  const int32_t room = std::max(1, w.context_tokens - chain.tokens());
  const Segment answer = new_segment(session, std::min(draw_length(w.output_tokens), room));
  session.history.push_back(answer);
  chain.append(answer);
  out.output_tokens = answer.tokens;
  out.output_blocks.assign(chain.full_ids().begin() + static_cast<std::ptrdiff_t>(full),
                           chain.full_ids().end());
  last_persona = session.persona;
  last_version = session.version;
  last_session = session.number;
}

bool PersonaSource::Impl::next(TraceRequest& out) {
  const Duration end = seconds(w.duration_s);
  while (true) {
    const Duration turn_at = due.empty() ? Duration::max() : due.top().at;
    const Duration next_joining = joining.empty() ? Duration::max() : joining.back();
    const Duration at = std::min({turn_at, next_session, next_flash, next_joining});
    if (at >= end) return false;
    apply_changes(at);
    if (at == next_joining) {
      joining.pop_back();
      meet_session(at);
      continue;
    }
    if (at == next_session) {
      next_session = next_start(at);
      start_session(at, rank_persona[static_cast<size_t>(zipf.draw(draw))]);
      continue;
    }
    if (at == next_flash) {
      next_flash = at + seconds(draw.exponential(flash_gap_s));
      if (next_flash >= w.flash->begin + w.flash->duration) next_flash = Duration::max();
      start_session(at, w.personas);
      continue;
    }
    const int32_t slot = due.top().slot;
    due.pop();
    Session& session = sessions[static_cast<size_t>(slot)];
    ask(session, at, out);
    session.swiping = w.swipe > 0 && draw.uniform() < w.swipe;
    if (session.swiping || session.turns_left > 0) {
      const double answer_s = w.answer_s_per_token * out.output_tokens;
      due.push({at + seconds(answer_s + draw.exponential(w.think_s)), due_count++, slot});
    } else {
      free_slots.push_back(slot);
    }
    return true;
  }
}

PersonaSource::PersonaSource(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PersonaSource::~PersonaSource() = default;

StatusOr<std::unique_ptr<PersonaSource>> PersonaSource::make(const PersonaWorkload& workload, uint64_t seed) {
  TROUPE_RETURN_IF_ERROR(check_workload(workload));
  return std::unique_ptr<PersonaSource>(new PersonaSource(std::make_unique<Impl>(workload, seed)));
}

std::string PersonaSource::set_name() const {
  return set_of(impl_->last_persona, impl_->last_version);
}

std::string PersonaSource::session_name() const {
  return absl::StrCat("s", impl_->last_session);
}

StatusOr<bool> PersonaSource::next(TraceRequest& out) {
  if (!impl_->next(out)) return false;
  out.set = id_of(set_name());
  out.session = id_of(session_name());
  return true;
}

}  // namespace troupe::sim
