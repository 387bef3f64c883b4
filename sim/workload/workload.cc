#include "sim/workload/workload.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/settings/option_checks.h"
#include "sim/trace/block_chain.h"
#include "sim/workload/arrivals.h"
#include "sim/workload/calendar_queue.h"
#include "sim/workload/distributions.h"

namespace troupe::sim {

namespace {

constexpr uint64_t kSystemContent = 1;

Duration seconds(double s) {
  return Duration(std::llround(s * 1e9));
}

struct Persona {
  int32_t tokens = 0;
  int32_t version = 0;
  // System prompt and card of the version asked last: most of a prompt, and always the same.
  std::vector<uint64_t> start_ids;
  TextEnd start_end;
  int32_t start_version = -1;  // none
  uint64_t start_set = 0;      // id_of() of its set
};

// Personas whose starts are kept, at a kilobyte each.
constexpr size_t kStartsMax = 1 << 16;

// A user's turn or an answer, with its number in the session.
struct Said {
  uint32_t number = 0;
  int32_t tokens = 0;
};

struct Session {
  alignas(64) uint64_t number = 0;
  uint64_t id = 0;  // id_of() of its name
  int32_t persona = 0, version = 0;
  int32_t card_tokens = 0;
  int32_t turn = 0;        // asked so far
  int32_t turns_left = 1;  // to ask, swipes not counted
  bool swiping = false;    // the next request asks for the last turn again
  uint32_t said_count = 0;
  // Text of earlier turns never changes: the first `written` entries of `history` complete these blocks
  // behind those of the persona's start.
  uint32_t written = 0;
  TextEnd end, end_before_last;  // behind all written, and behind all but the last of it
  std::vector<uint64_t> ids;
  std::vector<Said> history;  // user and answer in turn
};
static_assert(sizeof(Session) == 128, "two lines of memory");

std::string set_of(int32_t persona, int32_t version) {
  return absl::StrCat("p", persona, ".v", version);
}

std::string session_of(uint64_t number) {
  return absl::StrCat("s", number);
}

}  // namespace

uint64_t flash_set(const PersonaWorkload& w) {
  return w.flash ? id_of(set_of(w.personas, 0)) : 0;
}

struct PersonaSource::Impl {
  Impl(const PersonaWorkload& given, uint64_t seed) : w(given), draw(seed), zipf(given.personas, given.zipf) {
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
    // Requests of a session: it asks `turns` times, each perhaps again.
    const double requests = w.turns / (1 - w.swipe);
    session_gap_s = requests / w.rate;
    if (w.flash) flash_gap_s = session_gap_s * (1 - w.flash->share) / w.flash->share;
    // Sessions between two requests, in the stationary state; at any turn, as the rest of a geometric is
    // geometric.
    const double wait_s = w.think_s + w.answer_s_per_token * w.output_tokens;
    const double running = (requests - 1) / session_gap_s * wait_s;
    const int64_t met = std::llround(running);
    for (int64_t i = 0; i < met; ++i) {
      // Their users are thinking: the rest of an exponential time is exponential.
      joining.push_back(seconds(draw.uniform() * w.ramp_s + draw.exponential(wait_s)));
    }
    std::sort(joining.begin(), joining.end(), std::greater<>());
    next_session = next_start(w, session_gap_s, Duration::zero(), draw);
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
  Duration next_event(Duration now, double rate) {
    return rate > 0 ? now + seconds(draw.exponential(1 / rate)) : Duration::max();
  }

  bool next(TraceRequest& out);
  int32_t start_session(Duration at, int32_t persona);
  void meet_session(Duration at);
  void apply_changes(Duration until);
  void ask(Session& session, Duration at, TraceRequest& out);
  void fetch_ahead() const;
  const Persona& start_of(const Session& session);
  void write_texts(Session& session, TraceRequest& out);
  void truncate(Session& session, int32_t user_tokens, int32_t output_tokens) const;
  void end_session(int32_t slot);
  static Said new_said(Session& session, int32_t tokens) { return {++session.said_count, tokens}; }
  void write(Session& session, const Said& said, const TextEnd& start) const;

  PersonaWorkload w;
  Draw draw;
  Zipf zipf;
  Persona unkept;                 // the current start, where too many personas exist to keep theirs
  std::vector<Persona> personas;  // a flash crowd's comes last
  std::vector<int32_t> rank_persona;
  std::vector<Session> sessions;
  std::vector<int32_t> free_slots;
  std::vector<Duration> joining;  // join times of running conversations, the earliest last
  CalendarQueue due;
  uint64_t session_count = 0, due_count = 0;
  double session_gap_s = 0, flash_gap_s = 0;
  Duration next_session{}, next_flash = Duration::max(), next_edit{}, next_swap{};
  int32_t last_persona = 0, last_version = 0;
  uint64_t last_session = 0;
};

// Adds a conversation that has been going on for some turns.
void PersonaSource::Impl::meet_session(Duration at) {
  const int32_t slot = start_session(at, rank_persona[static_cast<size_t>(zipf.draw(draw))]);
  Session& session = sessions[static_cast<size_t>(slot)];
  session.turn = draw.geometric(w.turns);
  for (int32_t turn = 0; turn < std::min(session.turn, w.context_tokens); ++turn) {
    session.history.push_back(new_said(session, draw_length(w.user_tokens)));
    session.history.push_back(new_said(session, draw_length(w.output_tokens)));
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
  session.id = id_of(session_of(session.number));
  session.persona = persona;
  session.version = of.version;
  session.card_tokens = of.tokens;
  session.turns_left = draw.geometric(w.turns);
  session.turn = 0;
  session.swiping = false;
  session.said_count = session.written = 0;
  session.history.clear();
  due.push({at, due_count++, slot});
  return slot;
}

// Applies edits and swaps due before `until`.
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

// Drops the oldest turns until the rest, the new turn and its answer fit the context.
void PersonaSource::Impl::truncate(Session& session, int32_t user_tokens, int32_t output_tokens) const {
  int64_t total = int64_t{user_tokens} + output_tokens;
  if (session.written > 0) {
    total += session.end.tokens;
  } else {
    total += w.system_tokens + session.card_tokens;
    for (const Said& said : session.history) total += said.tokens;
  }
  size_t dropped = 0;
  while (total > w.context_tokens && dropped < session.history.size())
    total -= session.history[dropped++].tokens;
  if (dropped == 0) return;
  dropped += dropped % 2;  // a user's turn goes with its answer
  session.written = 0;
  session.history.erase(
      session.history.begin(),
      session.history.begin() + static_cast<std::ptrdiff_t>(std::min(dropped, session.history.size())));
}

// The system prompt and the card of a session.
const Persona& PersonaSource::Impl::start_of(const Session& session) {
  const bool kept = personas.size() <= kStartsMax;
  Persona& persona = kept ? personas[static_cast<size_t>(session.persona)] : unkept;
  if (kept && persona.start_version == session.version) return persona;
  const uint64_t card =
      mix(static_cast<uint64_t>(session.persona) + 1, static_cast<uint64_t>(session.version) << 32);
  persona.start_ids.resize(static_cast<size_t>((w.system_tokens + session.card_tokens) / w.block_tokens));
  uint64_t* const ids = persona.start_ids.data();
  const TextEnd system = append({}, {kSystemContent, w.system_tokens}, w.block_tokens, ids);
  persona.start_end = append(system, {card, session.card_tokens}, w.block_tokens, ids);
  persona.start_version = session.version;
  persona.start_set = id_of(set_of(session.persona, session.version));
  return persona;
}

// Appends the next text behind all that is written.
void PersonaSource::Impl::write(Session& session, const Said& said, const TextEnd& start) const {
  // Blocks are counted from the first one behind the start.
  const int32_t tokens_before = start.tokens - start.tokens % w.block_tokens;
  TextEnd end{session.end.chained, session.end.tokens - tokens_before};
  session.ids.resize(static_cast<size_t>((end.tokens + said.tokens) / w.block_tokens));
  end = append(end, {mix(session.number + 2, said.number), said.tokens}, w.block_tokens, session.ids.data());
  session.end_before_last = session.end;
  session.end = {end.chained, end.tokens + tokens_before};
  session.written += 1;
}

// Writes the start and all of the history; then the answer.
void PersonaSource::Impl::write_texts(Session& session, TraceRequest& out) {
  const Persona& start = start_of(session);
  if (session.written == 0) session.end = start.start_end;
  // (A swiped answer may have left some.)
  session.ids.resize(static_cast<size_t>(session.end.tokens / w.block_tokens) - start.start_ids.size());
  while (session.written < session.history.size())
    write(session, session.history[session.written], start.start_end);
  const std::vector<uint64_t>& ids = session.ids;
  out.blocks.clear();
  out.blocks.reserve(start.start_ids.size() + ids.size() + 1);
  out.blocks.insert(out.blocks.end(), start.start_ids.begin(), start.start_ids.end());
  out.blocks.insert(out.blocks.end(), ids.begin(), ids.end());
  out.input_tokens = session.end.tokens;
  if (out.input_tokens % w.block_tokens > 0) out.blocks.push_back(session.end.chained & kIdMask);
  out.set = start.start_set;

  const int32_t room = std::max(1, w.context_tokens - out.input_tokens);
  const Said answer = new_said(session, std::min(draw_length(w.output_tokens), room));
  const auto prompt_count = static_cast<std::ptrdiff_t>(ids.size());
  session.history.push_back(answer);
  write(session, answer, start.start_end);
  out.output_tokens = answer.tokens;
  out.output_blocks.assign(ids.begin() + prompt_count, ids.end());
}

// Prefetches the conversations of the next turns, which lie far apart in memory, while this one is asked.
void PersonaSource::Impl::fetch_ahead() const {
  if (const Due* later = due.behind_top(3)) {
    const Session& session = sessions[static_cast<size_t>(later->slot)];
    __builtin_prefetch(&session);
    __builtin_prefetch(&session.ids);
  }
  const Due* const next = due.behind_top(1);
  if (next == nullptr) return;
  const Session& session = sessions[static_cast<size_t>(next->slot)];
  __builtin_prefetch(session.history.data() + session.history.size());
  for (size_t i = 0; i < session.ids.size(); i += 8) __builtin_prefetch(&session.ids[i]);
}

void PersonaSource::Impl::ask(Session& session, Duration at, TraceRequest& out) {
  if (session.swiping) {
    session.history.pop_back();  // the swiped answer; its question stays
    session.written -= 1;
    session.end = session.end_before_last;
  } else {
    const int32_t user_tokens = draw_length(w.user_tokens);
    truncate(session, user_tokens, static_cast<int32_t>(w.output_tokens) * 2);
    session.history.push_back(new_said(session, user_tokens));
    session.turn += 1;
    session.turns_left -= 1;
  }
  write_texts(session, out);
  out.at = at;
  out.block_tokens = w.block_tokens;
  out.turn = session.turn;
  out.session = session.id;
  out.prefix_tokens = w.system_tokens + session.card_tokens;
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
      next_session = next_start(w, session_gap_s, at, draw);
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
    fetch_ahead();
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
  return session_of(impl_->last_session);
}

StatusOr<bool> PersonaSource::next(TraceRequest& out) {
  return impl_->next(out);
}

}  // namespace troupe::sim
