// Cards and turns are log-normal by the mean and the median that a set has (p90, too, comes out within a
// tenth); its p99 is the longest card.
//
//   sigma = sqrt(2 · ln(mean / median)), or ln(p90 / median) / 1.2816 where the mean is below the median
//
// No role-play set records arrivals, popularity or think times. For all of them:
//
// - zipf 1.31: slope of rank and rate, both logarithmic, of ranks 1 to 50 of m-mid's 109 clients (ServeGen,
//   arXiv 2505.09999, alibaba/ServeGen data/language/m-mid): a client stands for a persona
// - arrival_cv 1.32: median of the gaps' coefficient of variation, same clients, in windows of 600 s
// - think_s 172: with the answer's time the median gap is 120 s: time since a prefix was last used (Mooncake,
//   FAST'25, kvcache-ai/Mooncake conversation trace, first half hour); its p90 of 433 s is 400 here

#include "sim/workload/presets.h"

#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace troupe::sim {

namespace {

struct Lengths {
  double mean, p50, p90, p99;
  double sigma() const {
    return mean > p50 ? std::sqrt(2 * std::log(mean / p50)) : std::log(p90 / p50) / 1.2816;
  }
};

struct Preset {
  std::string_view name, source;
  Lengths card;  // tokens
  Lengths turn;  // of either side; 0: not published
  double turns;  // requests per conversation; 0: not published
};

// Tokens of English sets are LLaMA's, of Chinese ones DeepSeek's.
constexpr std::array kPresets{
    // boson-ai/RPBench-Auto data/rpbench_character.jsonl, 80 cards.
    Preset{"rpbench-character", "RPBench-Auto's English character cards", {431, 353, 854, 1201}, {}, 0},
    // boson-ai/RPBench-Auto data/rpbench_scene.jsonl, 80 prompts.
    Preset{"rpbench-scene", "RPBench-Auto's English scene prompts", {1218, 1235, 1376, 1645}, {}, 0},
    // morecry/CharacterEval: 78 profiles, 31,347 turns, contexts of 6.9 turns of both sides together (their
    // median 5, p90 14 and p99 29 are a geometric's).
    Preset{"charactereval",
           "CharacterEval's Chinese profiles",
           {621, 532, 1116, 1898},
           {24, 20, 44, 91},
           6.9 / 2},
    // LC1332/Chat-Haruhi-Suzumiya: 35 system prompts, 137,476 turns.
    Preset{"chatharuhi", "ChatHaruhi's Chinese system prompts", {191, 154, 349, 675}, {27, 19, 57, 110}, 0},
};

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names{"study"};
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

std::string preset_words() {
  std::string out =
      "start from published figures, flags beside it win. study: the defaults. The others' cards "
      "(mean/p50/p90/p99 tokens): ";
  for (const Preset& p : kPresets) {
    absl::StrAppend(&out, to_absl(p.name), " ", to_absl(p.source), " ", p.card.mean, "/", p.card.p50, "/",
                    p.card.p90, "/", p.card.p99);
    if (p.turn.mean > 0) absl::StrAppend(&out, ", turns of ", p.turn.mean);
    if (p.turns > 0) absl::StrAppend(&out, ", ", p.turns, " a conversation");
    out += "; ";
  }
  return out +
         "all with zipf 1.31 and arrival-cv 1.32 (ServeGen's m-mid clients) and a median gap of 120 s "
         "between a "
         "user's requests (Mooncake's conversation trace)";
}

PersonaWorkload workload_like(std::string_view name) {
  PersonaWorkload w;
  for (const Preset& p : kPresets) {
    if (p.name != name) continue;
    w.card_tokens = p.card.mean;
    w.card_sigma = p.card.sigma();
    w.card_tokens_min = 16;
    w.card_tokens_max = static_cast<int32_t>(p.card.p99);
    if (p.turn.mean > 0) {
      w.user_tokens = w.output_tokens = p.turn.mean;
      w.turn_sigma = p.turn.sigma();
    }
    if (p.turns > 0) w.turns = p.turns;
    w.zipf = 1.31;
    w.arrival_cv = 1.32;
    w.think_s = 172;
  }
  return w;
}

}  // namespace troupe::sim
