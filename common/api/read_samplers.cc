#include "common/api/read_samplers.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/api/read_sampler_lists.h"

namespace troupe {

namespace {

constexpr int64_t kCountMax = int64_t{1} << 30;  // of tokens; more is all there are
constexpr int64_t kLogprobsMax = 20;             // as of the field that it is an alias of
constexpr size_t kTextBytesMax = 16u << 20;      // the body's limit is narrower
constexpr double kCutoffUnit = 1e-4;             // of epsilon_cutoff and eta_cutoff: text-generation-webui's

// Rank: which of a sampler's names counts where a body has several; the lowest.
struct Row {
  std::string_view name;
  SamplerField field;
  uint8_t rank;
};

// Sorted by name.
constexpr Row kRows[] = {
    {"bad_words", SamplerField::kBadWords, 0},
    {"ban_eos_token", SamplerField::kBanEos, 0},
    {"banned_tokens", SamplerField::kBannedTokens, 0},
    {"cfg_scale", SamplerField::kGuidanceScale, 1},
    {"custom_token_bans", SamplerField::kBannedTokens, 1},
    {"dry_allowed_length", SamplerField::kDryAllowedLength, 0},
    {"dry_base", SamplerField::kDryBase, 0},
    {"dry_multiplier", SamplerField::kDryMultiplier, 0},
    {"dry_penalty_last_n", SamplerField::kDryRange, 0},
    {"dry_range", SamplerField::kDryRange, 1},
    {"dry_sequence_breakers", SamplerField::kDryBreakers, 0},
    {"dynamic_temperature", SamplerField::kDynamicTemperature, 0},
    {"dynatemp_exponent", SamplerField::kDynatempExponent, 0},
    {"dynatemp_high", SamplerField::kDynatempHigh, 0},
    {"dynatemp_low", SamplerField::kDynatempLow, 0},
    {"dynatemp_range", SamplerField::kDynatempRange, 0},
    {"epsilon_cutoff", SamplerField::kEpsilonCutoff, 0},
    {"eta_cutoff", SamplerField::kEtaCutoff, 0},
    {"guidance_scale", SamplerField::kGuidanceScale, 0},
    {"max_length", SamplerField::kMaxTokens, 2},
    {"max_new_tokens", SamplerField::kMaxTokens, 0},
    {"max_temp", SamplerField::kDynatempHigh, 1},
    {"min_length", SamplerField::kMinTokens, 1},
    {"min_temp", SamplerField::kDynatempLow, 1},
    {"min_tokens", SamplerField::kMinTokens, 0},
    {"mirostat", SamplerField::kMirostatMode, 1},
    {"mirostat_eta", SamplerField::kMirostatEta, 0},
    {"mirostat_mode", SamplerField::kMirostatMode, 0},
    {"mirostat_tau", SamplerField::kMirostatTau, 0},
    {"n_predict", SamplerField::kMaxTokens, 1},
    {"n_probs", SamplerField::kLogprobs, 0},
    {"negative_prompt", SamplerField::kNegativePrompt, 0},
    {"penalty_range", SamplerField::kRepetitionRange, 1},
    {"rep_pen", SamplerField::kRepetitionPenalty, 0},
    {"rep_pen_range", SamplerField::kRepetitionRange, 3},
    {"rep_pen_slope", SamplerField::kRepetitionSlope, 0},
    {"repeat_last_n", SamplerField::kRepetitionRange, 4},
    {"repeat_penalty", SamplerField::kRepetitionPenalty, 1},
    {"repetition_decay", SamplerField::kRepetitionDecay, 0},
    {"repetition_penalty_range", SamplerField::kRepetitionRange, 0},
    {"repetition_range", SamplerField::kRepetitionRange, 2},
    {"sampler_order", SamplerField::kOrder, 0},
    {"sampler_priority", SamplerField::kOrder, 1},
    {"sampler_seed", SamplerField::kSeed, 0},
    {"samplers", SamplerField::kOrder, 2},
    {"smoothing_curve", SamplerField::kSmoothingCurve, 0},
    {"smoothing_factor", SamplerField::kSmoothingFactor, 0},
    {"stop_sequence", SamplerField::kStop, 1},
    {"stopping_strings", SamplerField::kStop, 0},
    {"temp_exponent", SamplerField::kDynatempExponent, 1},
    {"temperature_last", SamplerField::kTemperatureLast, 0},
    {"tfs", SamplerField::kTfs, 0},
    {"tfs_z", SamplerField::kTfs, 1},
    {"top_a", SamplerField::kTopA, 0},
    {"typ_p", SamplerField::kTypicalP, 2},
    {"typical", SamplerField::kTypicalP, 1},
    {"typical_p", SamplerField::kTypicalP, 0},
    {"xtc_probability", SamplerField::kXtcProbability, 0},
    {"xtc_threshold", SamplerField::kXtcThreshold, 0},
};
static_assert(std::is_sorted(std::begin(kRows), std::end(kRows),
                             [](const Row& a, const Row& b) { return a.name < b.name; }));

const Row* find_row(std::string_view name) {
  const Row* row = std::lower_bound(std::begin(kRows), std::end(kRows), name,
                                    [](const Row& r, std::string_view n) { return r.name < n; });
  return row != std::end(kRows) && row->name == name ? row : nullptr;
}

// A field that its client left out.
bool is_blank(dom::element value) {
  return value.is_string() && value.get_string().value_unsafe().empty();
}

}  // namespace

bool GivenSamplers::knows(std::string_view name) {
  return find_row(name) != nullptr;
}

void GivenSamplers::take(std::string_view name, dom::element value) {
  const Row& row = *find_row(name);
  Given& given = given_[static_cast<size_t>(row.field)];
  if (is_blank(value) || (!given.name.empty() && given.rank < row.rank)) return;
  given = {row.name, value, row.rank};
}

const GivenSamplers::Given* GivenSamplers::find(SamplerField field) const {
  const Given& given = given_[static_cast<size_t>(field)];
  return given.name.empty() ? nullptr : &given;
}

Fault GivenSamplers::number(SamplerField field, const NumberRule& rule, double& out) const {
  out = rule.off;
  const Given* given = find(field);
  if (given == nullptr || (given->value.is_bool() && !given->value.get_bool().value_unsafe()))
    return std::nullopt;
  double number = 0;
  const bool is_number = given->value.is_number() && !given->value.get_double().get(number);
  if (is_number && number <= rule.off_max) return std::nullopt;
  if (auto fault = read_number(given->name, given->value, {rule.min, rule.max}, number)) return fault;
  out = number;
  return std::nullopt;
}

Fault GivenSamplers::integer(SamplerField field, int64_t off, int32_t& out) const {
  out = static_cast<int32_t>(off);
  const Given* given = find(field);
  if (given == nullptr || (given->value.is_bool() && !given->value.get_bool().value_unsafe()))
    return std::nullopt;
  const std::optional<int64_t> number = integer_of(given->value);
  if (!number) return expected(given->name, "an integer", given->value);
  if (*number > 0) out = static_cast<int32_t>(std::min(*number, kCountMax));
  return std::nullopt;
}

Fault GivenSamplers::flag(SamplerField field, std::optional<bool>& out) const {
  const Given* given = find(field);
  if (given == nullptr) return std::nullopt;
  bool is_on = false;
  if (auto fault = read_bool(given->name, given->value, is_on)) return fault;
  out = is_on;
  return std::nullopt;
}

Fault GivenSamplers::settle(GenerateRequest& request) const {
  if (auto fault = settle_aliases(request)) return fault;
  SamplerFields out;
  for (const auto part :
       {&GivenSamplers::settle_guidance, &GivenSamplers::settle_cuts, &GivenSamplers::settle_temperature,
        &GivenSamplers::settle_mirostat, &GivenSamplers::settle_repetition, &GivenSamplers::settle_dry,
        &GivenSamplers::settle_order}) {
    if (auto fault = (this->*part)(out)) return fault;
  }
  if (auto fault = settle_bans(request, out)) return fault;
  request.samplers = std::move(out);
  return std::nullopt;
}

// Names that other servers have for fields with a reader of their own.
Fault GivenSamplers::settle_aliases(GenerateRequest& request) const {
  const auto reads = [&](SamplerField field, bool is_there, std::string_view name,
                         bool (*is_off)(dom::element)) -> Fault {
    const Given* given = find(field);
    if (given == nullptr || is_there || is_off(given->value)) return std::nullopt;
    Fault fault = read_request_field({}, name, given->value, request);
    if (!fault) return fault;
    return ApiError::bad_field(given->name, absl::StrCat("'", to_absl(given->name), "' is ", to_absl(name),
                                                         " here: ", fault->message));
  };
  const auto is_empty = [](dom::element value) {
    return value.is_array() && value.get_array().value_unsafe().size() == 0;
  };
  const auto below_one = [](dom::element value) { return integer_of(value).value_or(1) < 1; };
  const auto never = [](dom::element) { return false; };
  if (auto f = reads(SamplerField::kMaxTokens, request.max_tokens.has_value(), "max_tokens", below_one))
    return f;
  if (auto f = reads(SamplerField::kStop, !request.stop.empty(), "stop", is_empty)) return f;
  if (auto f = reads(SamplerField::kSeed, request.seed.has_value(), "seed", never)) return f;
  if (auto f = reads(SamplerField::kRepetitionPenalty, request.repetition_penalty.has_value(),
                     "repetition_penalty", never))
    return f;
  const Given* const probs = find(SamplerField::kLogprobs);
  if (probs == nullptr || request.logprobs) return std::nullopt;
  int64_t count = 0;
  if (auto fault = read_integer(probs->name, probs->value, {-1, kLogprobsMax}, count)) return fault;
  if (count > 0) request.logprobs = static_cast<int32_t>(count);
  return std::nullopt;
}

// Front ends send 1, 0 and less where they want none.
Fault GivenSamplers::settle_guidance(SamplerFields& out) const {
  if (auto f = number(SamplerField::kGuidanceScale, {.max = 100, .off = 1}, out.guidance_scale)) return f;
  const Given* const negative = find(SamplerField::kNegativePrompt);
  if (negative == nullptr || out.guidance_scale == 1) return std::nullopt;
  return read_string(negative->name, negative->value, kTextBytesMax, out.negative_prompt);
}

Fault GivenSamplers::settle_cuts(SamplerFields& out) const {
  if (auto f = number(SamplerField::kTypicalP, {.max = 1, .off = 1}, out.typical_p)) return f;
  if (auto f = number(SamplerField::kTopA, {.max = 1}, out.top_a)) return f;
  if (auto f = number(SamplerField::kTfs, {.max = 1, .off = 1}, out.tfs)) return f;
  const NumberRule cutoff{.max = 9999};
  if (auto f = number(SamplerField::kEpsilonCutoff, cutoff, out.epsilon_cutoff)) return f;
  if (auto f = number(SamplerField::kEtaCutoff, cutoff, out.eta_cutoff)) return f;
  out.epsilon_cutoff *= kCutoffUnit;
  out.eta_cutoff *= kCutoffUnit;
  if (auto f = number(SamplerField::kXtcProbability, {.max = 1}, out.xtc_probability)) return f;
  if (out.xtc_probability == 0) return std::nullopt;
  return number(SamplerField::kXtcThreshold, {.max = 1, .off = 0.1, .off_max = -1}, out.xtc_threshold);
}

Fault GivenSamplers::settle_temperature(SamplerFields& out) const {
  if (auto f = number(SamplerField::kSmoothingFactor, {.max = 100}, out.smoothing_factor)) return f;
  if (out.smoothing_factor > 0) {
    if (auto f = number(SamplerField::kSmoothingCurve, {.max = 100, .off = 1}, out.smoothing_curve)) return f;
  }
  std::optional<bool> is_asked;
  if (auto f = flag(SamplerField::kDynamicTemperature, is_asked)) return f;
  if (is_asked == false) return std::nullopt;
  const Given* const high = find(SamplerField::kDynatempHigh);
  double low_value = 0, high_value = 0;
  const NumberRule rule{.max = 10};
  if (find(SamplerField::kDynatempLow) != nullptr && high != nullptr) {
    if (auto f = number(SamplerField::kDynatempLow, rule, low_value)) return f;
    if (auto f = number(SamplerField::kDynatempHigh, rule, high_value)) return f;
    if (low_value > high_value && (is_asked || high_value > 0)) {
      return expected(high->name, absl::StrCat("a number from the low one, ", low_value, ", to 10"),
                      high->value);
    }
  }
  if (high_value > low_value || (is_asked && high_value > 0)) {
    out.dynatemp_low = low_value;
    out.dynatemp_high = high_value;
  } else if (auto f = number(SamplerField::kDynatempRange, rule, out.dynatemp_range)) {
    return f;
  } else if (out.dynatemp_range == 0) {
    return std::nullopt;
  }
  out.has_dynamic_temperature = true;
  return number(SamplerField::kDynatempExponent, {.max = 10, .off = 1, .off_max = -1}, out.dynatemp_exponent);
}

Fault GivenSamplers::settle_mirostat(SamplerFields& out) const {
  double mode = 0;
  const Given* const given = find(SamplerField::kMirostatMode);
  if (given == nullptr) return std::nullopt;
  if (given->value.is_bool()) {
    mode = given->value.get_bool().value_unsafe() ? 2 : 0;  // tabbyAPI's
  } else if (auto f = number(SamplerField::kMirostatMode, {.max = 2}, mode)) {
    return f;
  }
  if (mode != 0 && mode != 1 && mode != 2) return expected(given->name, "0, 1 or 2", given->value);
  out.mirostat_mode = static_cast<int32_t>(mode);
  if (out.mirostat_mode == 0) return std::nullopt;
  if (auto f = number(SamplerField::kMirostatTau, {.max = 100, .off = 5}, out.mirostat_tau)) return f;
  return number(SamplerField::kMirostatEta, {.max = 1, .off = 0.1, .off_max = -1}, out.mirostat_eta);
}

Fault GivenSamplers::settle_repetition(SamplerFields& out) const {
  if (auto f = integer(SamplerField::kRepetitionRange, 0, out.repetition_range)) return f;
  if (auto f = integer(SamplerField::kRepetitionDecay, 0, out.repetition_decay)) return f;
  if (auto f = number(SamplerField::kRepetitionSlope, {.max = 10, .off = 1}, out.repetition_slope)) return f;
  out.repetition_slope = std::min(out.repetition_slope, 1.0);  // as koboldcpp
  return std::nullopt;
}

Fault GivenSamplers::settle_dry(SamplerFields& out) const {
  if (auto f = number(SamplerField::kDryMultiplier, {.max = 100}, out.dry_multiplier)) return f;
  if (out.dry_multiplier == 0) return std::nullopt;
  if (auto f = number(SamplerField::kDryBase, {.max = 100, .off = 1.75, .min = 1}, out.dry_base)) return f;
  if (auto f = integer(SamplerField::kDryAllowedLength, 2, out.dry_allowed_length)) return f;
  if (auto f = integer(SamplerField::kDryRange, 0, out.dry_range)) return f;
  const Given* const breakers = find(SamplerField::kDryBreakers);
  if (breakers == nullptr) {
    out.dry_breakers = {"\n", ":", "\"", "*"};
    return std::nullopt;
  }
  return read_breakers(breakers->name, breakers->value, out.dry_breakers);
}

Fault GivenSamplers::settle_bans(const GenerateRequest& request, SamplerFields& out) const {
  int32_t min_tokens = 0;
  if (auto f = integer(SamplerField::kMinTokens, 0, min_tokens)) return f;
  out.min_tokens = min_tokens;
  if (request.max_tokens && min_tokens > *request.max_tokens) {
    const Given& given = *find(SamplerField::kMinTokens);
    return expected(given.name, absl::StrCat("at most what max_tokens is, ", *request.max_tokens),
                    given.value);
  }
  std::optional<bool> bans_eos;
  if (auto f = flag(SamplerField::kBanEos, bans_eos)) return f;
  out.bans_eos = bans_eos.value_or(false);
  if (const Given* given = find(SamplerField::kBannedTokens)) {
    if (auto f = read_banned_tokens(given->name, given->value, out.banned_tokens)) return f;
  }
  const Given* const words = find(SamplerField::kBadWords);
  return words == nullptr ? std::nullopt : read_bad_words(words->name, words->value, out.bad_words);
}

Fault GivenSamplers::settle_order(SamplerFields& out) const {
  std::optional<bool> is_last;
  if (auto f = flag(SamplerField::kTemperatureLast, is_last)) return f;
  const Given* const order = find(SamplerField::kOrder);
  if (order != nullptr) {
    if (auto f = read_sampler_order(order->name, order->value, out)) return f;
  }
  if (is_last) move_temperature(*is_last, out);
  return std::nullopt;
}

}  // namespace troupe
