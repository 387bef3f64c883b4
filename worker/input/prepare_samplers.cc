#include "worker/input/prepare_samplers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace troupe {

namespace {

std::string tokens_outside(int32_t id, const SamplerModel& model) {
  return "token id " + std::to_string(id) + " is outside the vocabulary [0, " +
         std::to_string(model.config.vocab_size) + ")";
}

std::optional<ApiError> take_banned(const SamplerModel& model, const SamplerFields& fields,
                                    HistorySamplers& out) {
  for (size_t i = 0; i < fields.banned_tokens.size(); ++i) {
    const int32_t id = fields.banned_tokens[i];
    if (id >= model.config.vocab_size) {
      return ApiError::bad_field("banned_tokens[" + std::to_string(i) + "]", tokens_outside(id, model));
    }
    out.banned.push_back(id);
  }
  return std::nullopt;
}

// As vLLM: a word as it begins a text and as it stands behind a space, where that is a token of its own.
std::optional<ApiError> take_bad_words(const SamplerModel& model, const SamplerFields& fields,
                                       HistorySamplers& out) {
  for (size_t i = 0; i < fields.bad_words.size(); ++i) {
    const std::string field = "bad_words[" + std::to_string(i) + "]";
    const std::string& word = fields.bad_words[i];
    const std::string bare = word.substr(std::min(word.find_first_not_of(' '), word.size()));
    std::vector<TokenId> first;
    for (const std::string& text : {word, " " + bare}) {
      auto ids = model.tokenizer.encode(text, /*add_special=*/false);
      if (!ids.ok()) return ApiError::bad_field(field, to_std(ids.status().message()));
      // A token without an embedding never comes.
      const auto is_unknown = [&](TokenId id) { return id >= model.config.vocab_size; };
      if (std::any_of(ids->begin(), ids->end(), is_unknown)) continue;
      const bool is_other = first.empty() || (ids->size() == first.size() && ids->front() != first.front());
      if (ids->empty() || !is_other) continue;
      first = *ids;
      if (ids->size() == 1) {
        out.banned.push_back(ids->front());
      } else {
        out.banned_sequences.push_back(*std::move(ids));
      }
    }
  }
  return std::nullopt;
}

// Tokens that end an answer, of the model's vocabulary.
std::vector<TokenId> ends_of(const SamplerModel& model, const EngineRequest& engine, bool with_stops) {
  std::vector<TokenId> ids;
  const auto add = [&](TokenId id) {
    if (id < model.config.vocab_size) ids.push_back(id);
  };
  for (const TokenId id : model.config.eos_token_ids) add(id);
  if (!with_stops) return ids;
  if (engine.ignore_eos) ids.clear();
  for (const TokenId id : engine.stop_token_ids) add(id);
  return ids;
}

// Some token must be left to draw, whatever the history.
std::optional<ApiError> check_bans(const SamplerModel& model, const HistorySamplers& history) {
  absl::flat_hash_set<TokenId> banned(history.banned.begin(), history.banned.end());
  banned.insert(history.banned_early.begin(), history.banned_early.end());
  for (const std::vector<TokenId>& sequence : history.banned_sequences) banned.insert(sequence.back());
  if (static_cast<int64_t>(banned.size()) < model.config.vocab_size) return std::nullopt;
  return ApiError::bad_field("banned_tokens", "every token of the vocabulary of " +
                                                  std::to_string(model.config.vocab_size) + " is banned");
}

// Samplers that change something, in their order; those of kind `penalties` and the like by their value.
bool is_active(Sampler sampler, const SamplerChain& chain, const SamplingParams& sampling) {
  switch (sampler) {
    case Sampler::kPenalties:
      return sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 ||
             sampling.frequency_penalty != 0;
    case Sampler::kTopK:
      return sampling.top_k > 0;
    case Sampler::kTopA:
      return chain.top_a > 0;
    case Sampler::kTfs:
      return chain.tfs < 1;
    case Sampler::kTypicalP:
      return chain.typical_p < 1;
    case Sampler::kEpsilon:
      return chain.epsilon > 0;
    case Sampler::kEta:
      return chain.eta > 0;
    case Sampler::kTopP:
      return sampling.top_p < 1;
    case Sampler::kMinP:
      return sampling.min_p > 0;
    case Sampler::kTemperature:
      return sampling.temperature != 1 || chain.has_dynamic_temperature;
    case Sampler::kSmoothing:
      return chain.smoothing_factor > 0;
    case Sampler::kXtc:
      return chain.xtc_probability > 0 && chain.xtc_threshold <= 0.5f;
  }
  return false;
}

// Whether a draw without a chain (sampling.h) does the same: what is active is known there, in its order.
bool is_plain(const SamplerChain& chain, const SamplingParams& sampling) {
  if (chain.mirostat != 0 || chain.has_dynamic_temperature) return false;
  constexpr Sampler kPlain[] = {Sampler::kPenalties, Sampler::kTemperature, Sampler::kTopK, Sampler::kTopP,
                                Sampler::kMinP};
  std::vector<Sampler> expected, active;
  for (const Sampler sampler : kPlain) {
    if (is_active(sampler, chain, sampling)) expected.push_back(sampler);
  }
  for (const Sampler sampler : chain.order) {
    if (is_active(sampler, chain, sampling)) active.push_back(sampler);
  }
  return active == expected;
}

StatusOr<std::shared_ptr<const DryBreakers>> breakers_of(const SamplerModel& model,
                                                         const std::vector<std::string>& texts) {
  if (model.breaker_cache != nullptr) return model.breaker_cache->find(texts);
  TROUPE_ASSIGN_OR_RETURN(DryBreakers found, find_breakers(model.tokenizer, texts));
  return std::make_shared<const DryBreakers>(std::move(found));
}

}  // namespace

std::optional<SamplerChain> chain_of(const SamplerFields& fields, const SamplingParams& sampling) {
  if (!(sampling.temperature > 0)) return std::nullopt;
  SamplerChain chain;
  chain.top_a = static_cast<float>(fields.top_a);
  chain.tfs = static_cast<float>(fields.tfs);
  chain.typical_p = static_cast<float>(fields.typical_p);
  chain.epsilon = static_cast<float>(fields.epsilon_cutoff);
  chain.eta = static_cast<float>(fields.eta_cutoff);
  chain.smoothing_factor = static_cast<float>(fields.smoothing_factor);
  chain.smoothing_curve = static_cast<float>(fields.smoothing_curve);
  chain.has_dynamic_temperature = fields.has_dynamic_temperature;
  chain.dynatemp_low = static_cast<float>(fields.dynatemp_low);
  chain.dynatemp_high = static_cast<float>(fields.dynatemp_high);
  if (fields.dynatemp_range > 0) {
    const auto range = static_cast<float>(fields.dynatemp_range);
    chain.dynatemp_low = std::max(sampling.temperature - range, 0.0f);
    chain.dynatemp_high = sampling.temperature + range;
  }
  chain.dynatemp_exponent = static_cast<float>(fields.dynatemp_exponent);
  chain.xtc_probability = static_cast<float>(fields.xtc_probability);
  chain.xtc_threshold = static_cast<float>(fields.xtc_threshold);
  chain.mirostat = fields.mirostat_mode;
  chain.mirostat_tau = static_cast<float>(fields.mirostat_tau);
  chain.mirostat_eta = static_cast<float>(fields.mirostat_eta);
  // Without an order of its own a request whose cuts are the plain ones has the plain order.
  constexpr SamplerOrder kPlainOrder = {Sampler::kPenalties, Sampler::kTemperature, Sampler::kSmoothing,
                                        Sampler::kTopK,      Sampler::kTopP,        Sampler::kMinP,
                                        Sampler::kTopA,      Sampler::kTfs,         Sampler::kTypicalP,
                                        Sampler::kEpsilon,   Sampler::kEta,         Sampler::kXtc};
  if (!fields.has_order) {
    chain.order = kPlainOrder;
    if (is_plain(chain, sampling)) return std::nullopt;
  }
  chain.order = fields.order;
  if (is_plain(chain, sampling)) return std::nullopt;
  // Penalties that are behind nothing that changes something are edits of the row.
  const auto penalties = std::find(chain.order.begin(), chain.order.end(), Sampler::kPenalties);
  const bool is_early = std::none_of(chain.order.begin(), penalties,
                                     [&](Sampler sampler) { return is_active(sampler, chain, sampling); });
  if (is_early || !is_active(Sampler::kPenalties, chain, sampling))
    std::rotate(chain.order.begin(), penalties, penalties + 1);
  return chain;
}

std::optional<ApiError> take_samplers(const SamplerModel& model, const SamplerFields& fields,
                                      EngineRequest& engine) {
  HistorySamplers& history = engine.sampling.history;
  history.repetition_range = fields.repetition_range;
  history.repetition_slope = static_cast<float>(fields.repetition_slope);
  history.repetition_decay = fields.repetition_decay;
  if (auto fault = take_banned(model, fields, history)) return fault;
  if (auto fault = take_bad_words(model, fields, history)) return fault;
  if (fields.bans_eos) {
    const std::vector<TokenId> ends = ends_of(model, engine, /*with_stops=*/false);
    history.banned.insert(history.banned.end(), ends.begin(), ends.end());
  }
  if (fields.min_tokens > 0) {
    history.min_tokens = static_cast<int32_t>(fields.min_tokens);
    history.banned_early = ends_of(model, engine, /*with_stops=*/true);
  }
  if (auto fault = check_bans(model, history)) return fault;
  if (fields.dry_multiplier > 0) {
    history.dry.multiplier = static_cast<float>(fields.dry_multiplier);
    history.dry.base = static_cast<float>(fields.dry_base);
    history.dry.allowed_length = fields.dry_allowed_length;
    history.dry.range = fields.dry_range;
    auto breakers = breakers_of(model, fields.dry_breakers);
    if (!breakers.ok())
      return ApiError::bad_field("dry_sequence_breakers", to_std(breakers.status().message()));
    history.dry.breakers = *std::move(breakers);
  }
  engine.sampling.chain = chain_of(fields, engine.sampling);
  const bool has_mirostat = engine.sampling.chain && engine.sampling.chain->mirostat != 0;
  if (has_mirostat && !engine.banned_strings.empty()) {
    return ApiError::bad_field(
        "banned_strings",
        "'banned_strings' and mirostat ('mirostat_mode') cannot be combined: an answer "
        "that goes on elsewhere would not know what was taken back.");
  }
  return std::nullopt;
}

}  // namespace troupe
