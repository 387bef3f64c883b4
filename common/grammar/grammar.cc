#include "common/grammar/grammar.h"

#include <algorithm>

#include "common/core/check.h"

namespace troupe::grammar {

GrammarRuntime::GrammarRuntime(const Rules* rules, const Vocabulary* vocabulary, const Options& options)
    : earley_(rules, options.parser), masks_(&earley_, vocabulary, options.masks), start_(earley_.start()) {}

StatusOr<std::shared_ptr<const CompiledGrammar>> CompiledGrammar::make(
    Rules rules, std::shared_ptr<const Vocabulary> vocabulary, const GrammarRuntime::Options& options) {
  const std::shared_ptr<CompiledGrammar> grammar(new CompiledGrammar);
  grammar->rules_ = std::move(rules);
  grammar->vocabulary_ = std::move(vocabulary);
  grammar->options_ = options;
  GrammarMatcher matcher(grammar);
  if (!matcher.forced_bytes(1).ok()) return invalid_argument("the grammar is too large");
  return std::shared_ptr<const CompiledGrammar>(grammar);
}

std::shared_ptr<GrammarRuntime> CompiledGrammar::runtime() const {
  const MutexLock lock(mutex_);
  if (runtime_ == nullptr) runtime_ = std::make_shared<GrammarRuntime>(&rules_, vocabulary_.get(), options_);
  return runtime_;
}

std::shared_ptr<GrammarRuntime> CompiledGrammar::renewed(const std::shared_ptr<GrammarRuntime>& full) const {
  {
    const MutexLock lock(mutex_);
    if (runtime_ == full) runtime_ = nullptr;
  }
  return runtime();
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<const CompiledGrammar> grammar)
    : grammar_(std::move(grammar)), runtime_(grammar_->runtime()) {
  steps_.push_back({runtime_->start_, 0});
}

static Status exhausted_error() {
  return absl::ResourceExhaustedError("the answer is too complex under its grammar");
}

ConfigId GrammarMatcher::walk(std::string_view text, ConfigId from) {
  ConfigId config = from;
  for (const char c : text) config = runtime_->earley_.step(config, static_cast<uint8_t>(c));
  return config;
}

Status GrammarMatcher::renew() {
  runtime_ = grammar_->renewed(runtime_);
  const MutexLock lock(runtime_->mutex_);
  ConfigId config = runtime_->start_;
  size_t begin = 0;
  for (Step& step : steps_) {
    config = walk(std::string_view(text_).substr(begin, step.text_end - begin), config);
    step.config = config;
    begin = step.text_end;
  }
  return runtime_->earley_.exhausted() ? exhausted_error() : Status();
}

StatusOr<bool> GrammarMatcher::accept_text(std::string_view text) {
  if (has_ended()) return false;
  for (int attempt = 0; attempt < 2; ++attempt) {
    {
      const MutexLock lock(runtime_->mutex_);
      const ConfigId config = walk(text, steps_.back().config);
      if (!runtime_->earley_.exhausted()) {
        if (config == Earley::kRefused) return false;
        text_ += text;
        steps_.push_back({config, text_.size()});
        return true;
      }
    }
    TROUPE_RETURN_IF_ERROR(renew());
  }
  return exhausted_error();
}

StatusOr<bool> GrammarMatcher::accept(int32_t token) {
  const Vocabulary& vocabulary = grammar_->vocabulary();
  if (token < 0 || static_cast<size_t>(token) >= vocabulary.size() || has_ended()) return false;
  if (vocabulary.is_end(token)) {
    if (!is_accepting()) return false;
    steps_.push_back({steps_.back().config, text_.size(), true});
    return true;
  }
  const std::string_view text = vocabulary.text(token);
  return text.empty() ? StatusOr<bool>(false) : accept_text(text);
}

void GrammarMatcher::rollback(size_t steps) {
  TROUPE_CHECK(steps <= step_count(), "more steps are taken back than were taken");
  steps_.resize(steps_.size() - steps, Step{});
  text_.resize(steps_.back().text_end);
}

bool GrammarMatcher::is_accepting() {
  const MutexLock lock(runtime_->mutex_);
  return !has_ended() && runtime_->earley_.accepting(steps_.back().config);
}

bool GrammarMatcher::is_finished() {
  const MutexLock lock(runtime_->mutex_);
  const ConfigId config = steps_.back().config;
  return !has_ended() && runtime_->earley_.accepting(config) && runtime_->earley_.threads(config).empty();
}

Status GrammarMatcher::fill_mask(std::span<uint32_t> bits) {
  const Vocabulary& vocabulary = grammar_->vocabulary();
  TROUPE_CHECK(bits.size() >= vocabulary.mask_words(), "the mask has too few words");
  std::fill(bits.begin(), bits.end(), 0u);
  if (has_ended()) return {};
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::shared_ptr<const TokenSet> mask;
    {
      const MutexLock lock(runtime_->mutex_);
      mask = runtime_->masks_.mask(steps_.back().config);
      if (runtime_->earley_.exhausted()) mask = nullptr;
    }
    if (mask != nullptr) {
      mask->set_in(bits);
      if (is_accepting())
        for (const int32_t token : vocabulary.end_tokens())
          bits[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
      return {};
    }
    TROUPE_RETURN_IF_ERROR(renew());
  }
  return exhausted_error();
}

StatusOr<std::string> GrammarMatcher::forced_bytes(size_t max) {
  std::string forced;
  if (has_ended()) return forced;
  for (int attempt = 0; attempt < 2; ++attempt) {
    {
      const MutexLock lock(runtime_->mutex_);
      Earley& earley = runtime_->earley_;
      ConfigId config = steps_.back().config;
      while (forced.size() < max) {
        const int32_t byte = earley.only_byte(config);
        if (byte < 0) break;
        forced += static_cast<char>(byte);
        config = earley.step(config, static_cast<uint8_t>(byte));
      }
      if (!earley.exhausted()) return forced;
    }
    forced.clear();
    TROUPE_RETURN_IF_ERROR(renew());
  }
  return exhausted_error();
}

}  // namespace troupe::grammar
