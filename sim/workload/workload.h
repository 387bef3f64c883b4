#pragma once

// Synthetic persona traffic, as no public trace has any: many users, each in a conversation with one of P
// personas whose popularity is Zipf's. Open loop: sessions' starts and think times do not depend on the speed
// of the answers.
//
// A prompt is  system line (one for all) · persona card (one a persona) · history · new user turn, cut into
// blocks whose cumulative ids are hashes of the contents they cover, so the same text has the same ids
// wherever it occurs: a swipe asks for the same prompt again, an edited card is another prefix from its first
// token, and the answer of one turn is part of the next one's prompt.
//
// Defaults are the study's (shared system line of 64 tokens, cards log-normal with σ 0.6 in 64..4,000, turns
// geometric, think time exponential, +40 user and +120 answered tokens a turn); published sets have shorter
// cards and turns: presets.h.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/core/status.h"
#include "sim/trace/trace.h"

namespace troupe::sim {

struct FlashCrowd {
  double share = 0;        // of all requests while it lasts, 0..1, in addition to the others
  Duration begin{};        // since the trace began
  Duration duration{};     // time during which its new sessions begin
  double card_tokens = 0;  // exact length of its persona; 0: the mean of the others
};

// A burst of all traffic: conversations begin `times` as often.
struct Burst {
  double times = 2;  // > 1
  Duration begin{};
  Duration duration{};
};

struct PersonaWorkload {
  int32_t personas = 2000;
  double zipf = 0.9;          // popularity of rank r is r^-zipf; 0: uniform
  double card_tokens = 1000;  // mean of the log-normal
  double card_sigma = 0.6;
  int32_t card_tokens_min = 64, card_tokens_max = 4000;
  int32_t system_tokens = 64;        // the line common to all personas
  double turns = 8;                  // mean of the geometric, >= 1
  double think_s = 20;               // mean of the exponential, from the answer's (nominal) end
  double answer_s_per_token = 0.01;  // user's wait for a token before thinking; open loop, so not measured
  double user_tokens = 40;           // means of log-normals with turn_sigma, at least 1 token
  double output_tokens = 120;
  double turn_sigma = 0.5;
  double ramp_s = 0;  // time of the rise from 0 to `rate`; then stationary, with running sessions
  double rate = 100;  // requests/s after the ramp
  double duration_s = 300;
  double arrival_cv = 1;  // std/mean of the gamma-distributed gaps between starts; 1: Poisson
  int32_t block_tokens = 16;
  int32_t context_tokens = 8192;  // prompt and answer: older turns are dropped to stay inside
  double swipe = 0;               // probability that a turn is asked again, its answer replaced
  double edits_per_s = 0;         // rate of rewritten cards; running sessions keep the old one
  double drift_swaps_per_s = 0;   // rate at which two personas swap popularity ranks
  std::optional<FlashCrowd> flash = std::nullopt;
  std::optional<Burst> burst = std::nullopt;
};

// The set of the flash crowd's requests in a trace of this workload; 0 without one.
uint64_t flash_set(const PersonaWorkload& workload);

// Errors name the field and the range.
Status check_workload(const PersonaWorkload& workload);

// The same seed gives the same requests. Memory: the running sessions, about rate · think_s of them.
class PersonaSource final : public RequestSource {
 public:
  static StatusOr<std::unique_ptr<PersonaSource>> make(const PersonaWorkload& workload, uint64_t seed);
  ~PersonaSource() override;
  StatusOr<bool> next(TraceRequest& out) override;
  // Names of the request next() returned last, for append_trace_line: "p17.v2" and "s1234".
  std::string set_name() const;
  std::string session_name() const;

 private:
  struct Impl;
  explicit PersonaSource(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::sim
