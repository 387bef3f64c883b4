// Tokens are kept sorted, so that all cuts but the typical one leave the first n: it leaves n in the middle,
// whose ends one pass from H outwards finds, and XTC the last n.

#include "kernels/sampler_chain.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "kernels/best_tokens.h"
#include "kernels/draw_weights.h"
#include "kernels/exact_math.h"
#include "kernels/logit_edit.h"
#include "kernels/philox.h"

namespace troupe {

namespace {

constexpr float kLog2E = 1.44269504f;
constexpr double kLn2 = 0.69314718055994531;
constexpr double kTemperatureMin = 1.0 / 256;  // of dynatemp, whose low may be 0: koboldcpp's
constexpr float kLogitMax = 1e30f;             // logits stay numbers, whatever a temperature makes of them
constexpr size_t kMirostatTokens = 100;        // that the exponent is estimated from

// Bits of XTC's roll: a counter beside those of counter_bits() and choice_seed().
double xtc_roll(const DrawParams& draw) {
  const PhiloxCounter bits =
      philox4x32_10({static_cast<uint32_t>(draw.position), static_cast<uint32_t>(draw.position >> 32), 0, 2},
                    {static_cast<uint32_t>(draw.seed), static_cast<uint32_t>(draw.seed >> 32)});
  return static_cast<double>((uint64_t{bits[1]} << 32 | bits[0]) >> (64 - kDrawBits)) * 0x1p-53;
}

struct Token {
  float below = 0;  // d: its logit less the greatest
  int32_t id = 0;
  uint64_t weight = 0;
};

bool better(const Token& a, const Token& b) {
  return a.below != b.below ? a.below > b.below : a.id < b.id;
}

class Chain {
 public:
  Chain(std::span<const float> logits, const SampleRow& row);

  bool is_empty() const { return tokens_.empty(); }
  void run();
  // REQUIRES: run() was called.
  std::vector<WeighedToken> take();

 private:
  void apply(Sampler sampler);
  size_t first_count() const;
  void weigh();
  double probability(size_t i) const {
    return static_cast<double>(tokens_[i].weight) / static_cast<double>(total_);
  }
  // ln of the sum of e^d.
  double log_sum() const { return exact_log(static_cast<double>(total_) / static_cast<double>(kFullWeight)); }
  double entropy() const;
  void keep(size_t begin, size_t end);
  // Keeps the tokens before the first whose probability is less.
  void keep_from(double least);
  void sort();

  void penalize();
  void heat();
  void smooth();
  void cut_tail();
  void cut_untypical();
  void cut_nucleus();
  void exclude_top_choices();
  void cut_by_mirostat();
  size_t zipf_count() const;

  const SampleRow& row_;
  const SamplerChain& chain_;
  double vocab_;
  float best_ = 0;  // the logit of d = 0
  std::vector<Token> tokens_;
  uint64_t total_ = 0;  // of weights; 0: they are to be made
};

Chain::Chain(std::span<const float> logits, const SampleRow& row)
    : row_(row), chain_(*row.chain), vocab_(static_cast<double>(logits.size())) {
  const std::vector<uint64_t> ranks = best_tokens(logits, first_count());
  if (ranks.empty()) return;
  best_ = clean_logit(logits[id_of_rank(ranks.front())]);
  tokens_.reserve(ranks.size());
  for (const uint64_t rank : ranks) {
    const uint32_t id = id_of_rank(rank);
    tokens_.push_back({std::max(clean_logit(logits[id]) - best_, -FLT_MAX), static_cast<int32_t>(id), 0});
  }
}

// Where the first sampler is top_k no others are needed.
size_t Chain::first_count() const {
  for (const Sampler sampler : chain_.order) {
    if (sampler == Sampler::kPenalties && !chain_.has_late_penalties()) continue;
    if (sampler != Sampler::kTopK || row_.draw.top_k <= 0 || chain_.mirostat != 0) break;
    return static_cast<size_t>(std::min(row_.draw.top_k, kChainTokensMax));
  }
  return kChainTokensMax;
}

void Chain::run() {
  for (const Sampler sampler : chain_.order) apply(sampler);
  if (chain_.mirostat != 0) cut_by_mirostat();
  weigh();
}

std::vector<WeighedToken> Chain::take() {
  std::vector<WeighedToken> result;
  result.reserve(tokens_.size());
  for (const Token& token : tokens_) {
    if (token.weight > 0) result.push_back({token.id, token.weight});
  }
  return result;
}

void Chain::apply(Sampler sampler) {
  const DrawParams& draw = row_.draw;
  switch (sampler) {
    case Sampler::kPenalties:
      return chain_.has_late_penalties() ? penalize() : void();
    case Sampler::kTemperature:
      return heat();
    case Sampler::kSmoothing:
      return smooth();
    default:
      break;
  }
  if (chain_.mirostat != 0) return;
  switch (sampler) {
    case Sampler::kTopK:
      if (draw.top_k > 0) keep(0, static_cast<size_t>(draw.top_k));
      return;
    case Sampler::kTopA:
      if (!(chain_.top_a > 0)) return;
      weigh();
      return keep_from(double{chain_.top_a} * probability(0) * probability(0));
    case Sampler::kTfs:
      return cut_tail();
    case Sampler::kTypicalP:
      return cut_untypical();
    case Sampler::kEpsilon:
      return chain_.epsilon > 0 ? keep_from(chain_.epsilon) : void();
    case Sampler::kEta:
      if (!(chain_.eta > 0)) return;
      weigh();
      return keep_from(std::min(double{chain_.eta}, std::sqrt(double{chain_.eta}) * exact_exp(-entropy())));
    case Sampler::kTopP:
      return cut_nucleus();
    case Sampler::kMinP:
      if (!(draw.min_p > 0)) return;
      weigh();
      return keep_from(double{draw.min_p} * probability(0));
    case Sampler::kXtc:
      return exclude_top_choices();
    default:
      return;
  }
}

void Chain::weigh() {
  if (total_ != 0) return;
  for (Token& token : tokens_) {
    token.weight = draw_weight(token.below, 0.0f, kLog2E);
    total_ += token.weight;
  }
}

// REQUIRES: weighed
double Chain::entropy() const {
  double mean = 0;
  for (const Token& token : tokens_) mean += static_cast<double>(token.weight) * double{token.below};
  return log_sum() - mean / static_cast<double>(total_);
}

void Chain::keep(size_t begin, size_t end) {
  end = std::max(std::min(end, tokens_.size()), begin + 1);
  if (begin == 0 && end == tokens_.size()) return;
  tokens_.resize(end);
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(begin));
  if (tokens_.front().below != 0) return sort();
  if (total_ == 0) return;
  total_ = 0;
  for (const Token& token : tokens_) total_ += token.weight;
}

void Chain::keep_from(double least) {
  weigh();
  const double bound = least * static_cast<double>(total_);
  const auto end = std::partition_point(tokens_.begin(), tokens_.end(), [&](const Token& token) {
    return static_cast<double>(token.weight) >= bound;
  });
  keep(0, static_cast<size_t>(end - tokens_.begin()));
}

// Makes the first token the one of d = 0 again.
void Chain::sort() {
  if (!std::is_sorted(tokens_.begin(), tokens_.end(), better)) {
    std::sort(tokens_.begin(), tokens_.end(), better);
  }
  const float lift = tokens_.front().below;
  for (Token& token : tokens_) token.below = std::max(token.below - lift, -FLT_MAX);
  best_ = std::clamp(best_ + lift, -kLogitMax, kLogitMax);
  total_ = 0;
}

void Chain::penalize() {
  std::vector<LogitEdit> edits(row_.edits.begin(), row_.edits.end());
  for (LogitEdit& edit : edits) edit.bias = 0;  // was an edit of the row
  std::sort(edits.begin(), edits.end(),
            [](const LogitEdit& a, const LogitEdit& b) { return a.token < b.token; });
  for (Token& token : tokens_) {
    const auto found = std::lower_bound(edits.begin(), edits.end(), token.id,
                                        [](const LogitEdit& edit, int32_t id) { return edit.token < id; });
    if (found == edits.end() || found->token != token.id) continue;
    const float edited = edited_logit(token.below + best_, row_.penalties, *found);
    token.below = std::clamp(edited - best_, -FLT_MAX, kLogitMax);
  }
  sort();
}

void Chain::heat() {
  double temperature = double{row_.draw.temperature};
  if (chain_.has_dynamic_temperature) {
    if (tokens_.size() < 2) return;
    weigh();
    const double share = std::max(entropy(), 0.0) / exact_log(static_cast<double>(tokens_.size()));
    const double low = double{chain_.dynatemp_low};
    temperature =
        low + (double{chain_.dynatemp_high} - low) * exact_pow(share, double{chain_.dynatemp_exponent});
    temperature = std::max(temperature, kTemperatureMin);
  }
  if (temperature == 1) return;
  const auto divisor = static_cast<float>(temperature);
  for (Token& token : tokens_) token.below = std::max(token.below / divisor, -FLT_MAX);
  best_ = std::clamp(best_ / divisor, -kLogitMax, kLogitMax);
  total_ = 0;
}

void Chain::smooth() {
  if (!(chain_.smoothing_factor > 0) || tokens_.size() < 2) return;
  const double factor = double{chain_.smoothing_factor}, curve = double{chain_.smoothing_curve};
  const double k = (3 - curve) / 2 * factor, s = (curve - 1) / 2 * factor;
  for (Token& token : tokens_) {
    const double d = std::max(double{token.below}, -1e12);
    const double smoothed = -k * d * d + s * d * d * d;
    token.below = static_cast<float>(std::clamp(smoothed, -double{kLogitMax}, double{kLogitMax}));
  }
  sort();  // a curve above 3 lifts some above the best
}

void Chain::cut_tail() {
  const size_t count = tokens_.size();
  if (!(chain_.tfs < 1) || count < 3) return;
  weigh();
  const auto weight = [&](size_t i) { return static_cast<int64_t>(tokens_[i].weight); };
  const auto second = [&](size_t i) {
    return static_cast<double>(std::abs(weight(i) - 2 * weight(i + 1) + weight(i + 2)));
  };
  double sum = 0;
  for (size_t i = 0; i + 2 < count; ++i) sum += second(i);
  const bool is_flat = !(sum > 1e-6 * static_cast<double>(total_));
  const double bound = double{chain_.tfs} * (is_flat ? static_cast<double>(count - 2) : sum);
  double passed = 0;
  for (size_t i = 0; i + 2 < count; ++i) {
    passed += is_flat ? 1 : second(i);
    if (passed > bound && i >= 1) return keep(0, i);
  }
}

// -ln p rises along the tokens, so those closest to H are around the first that is not below it.
void Chain::cut_untypical() {
  if (!(chain_.typical_p < 1)) return;
  weigh();
  const double middle = log_sum() - entropy();  // d of the token whose -ln p is H
  const auto distance = [&](size_t i) { return std::abs(double{tokens_[i].below} - middle); };
  const auto first = std::find_if(tokens_.begin(), tokens_.end(),
                                  [&](const Token& token) { return double{token.below} <= middle; });
  size_t begin = static_cast<size_t>(first - tokens_.begin()), end = begin;
  const uint64_t target = nucleus_target(chain_.typical_p, total_);
  uint64_t mass = 0;
  while (mass < target) {
    const bool has_better = begin > 0, has_worse = end < tokens_.size();
    if (!has_better && !has_worse) break;
    if (has_better && (!has_worse || distance(begin - 1) <= distance(end))) {
      mass += tokens_[--begin].weight;
    } else {
      mass += tokens_[end++].weight;
    }
  }
  keep(begin, end);
}

void Chain::cut_nucleus() {
  if (!(row_.draw.top_p < 1)) return;
  weigh();
  const uint64_t target = nucleus_target(row_.draw.top_p, total_);
  size_t count = 0;
  for (uint64_t mass = 0; mass < target && count < tokens_.size(); ++count) mass += tokens_[count].weight;
  keep(0, count);
}

void Chain::exclude_top_choices() {
  const bool is_off = !(chain_.xtc_probability > 0) || chain_.xtc_threshold > 0.5f;
  if (is_off || tokens_.size() < 2 || xtc_roll(row_.draw) >= double{chain_.xtc_probability}) return;
  weigh();
  size_t count = 0;  // a few: probabilities add up to 1
  while (count < tokens_.size() && probability(count) >= double{chain_.xtc_threshold}) ++count;
  if (count > 1) keep(count - 1, tokens_.size());
}

void Chain::cut_by_mirostat() {
  weigh();
  if (chain_.mirostat == 1) return keep(0, zipf_count());
  keep_from(exact_exp(-double{*row_.mirostat_mu} * kLn2));
}

// k of the top_k whose surprise is μ where probabilities fall by Zipf's law.
size_t Chain::zipf_count() const {
  double products = 0, squares = 0;
  for (size_t i = 0; i + 1 < std::min(kMirostatTokens, tokens_.size()); ++i) {
    const double t = exact_log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    products += t * (double{tokens_[i].below} - double{tokens_[i + 1].below});
    squares += t * t;
  }
  if (!(squares > 0) || !(products > 0)) return tokens_.size();  // one token, or a flat row
  const double exponent = products / squares, excess = exponent - 1;
  // The sum of i^-exponent up to N is near (1 - N^-excess) / excess, and ln N for an exponent of 1.
  const double sum =
      std::abs(excess) < 1e-9 ? exact_log(vocab_) : (1 - exact_exp(-excess * exact_log(vocab_))) / excess;
  const double k = exact_exp((double{*row_.mirostat_mu} * kLn2 - exact_log(sum)) / exponent);
  return k < static_cast<double>(tokens_.size()) ? static_cast<size_t>(std::max(k, 1.0)) : tokens_.size();
}

// The surprise of the token drawn, in bits; of one that was cut away (a resumed answer's, computed in another
// order) the most that stays.
double surprise_of(std::span<const WeighedToken> tokens, uint64_t total, int32_t id, double mu) {
  for (const WeighedToken& token : tokens) {
    if (token.id != id) continue;
    return (exact_log(static_cast<double>(total)) - exact_log(static_cast<double>(token.weight))) / kLn2;
  }
  return mu;
}

}  // namespace

std::vector<WeighedToken> chain_tokens(std::span<const float> logits, const SampleRow& row) {
  Chain chain(logits, row);
  if (chain.is_empty()) return {};
  chain.run();
  return chain.take();
}

int32_t draw_by_chain(std::span<const float> logits, const SampleRow& row) {
  if (!(row.draw.temperature > 0)) return draw_token(logits, row.draw);
  const std::vector<WeighedToken> tokens = chain_tokens(logits, row);
  if (tokens.empty()) return kNoDraw;
  uint64_t total = 0;
  for (const WeighedToken& token : tokens) total += token.weight;
  int32_t id = row.known;
  if (id < 0) {
    const uint64_t target = draw_target(total, counter_bits(row.draw.seed, row.draw.position));
    uint64_t mass = 0;
    size_t i = 0;
    while ((mass += tokens[i].weight) <= target) ++i;
    id = tokens[i].id;
  }
  if (row.chain->mirostat != 0) {
    float& mu = *row.mirostat_mu;
    const double error = surprise_of(tokens, total, id, double{mu}) - double{row.chain->mirostat_tau};
    mu = static_cast<float>(double{mu} - double{row.chain->mirostat_eta} * error);
  }
  return id;
}

int32_t edit_and_draw(std::span<float> logits, const SampleRow& row, const int32_t* drawn) {
  edit_logits(logits, row, drawn);
  apply_mask(logits, row.mask);
  return row.chain == nullptr ? draw_token(logits, row.draw) : draw_by_chain(logits, row);
}

}  // namespace troupe
