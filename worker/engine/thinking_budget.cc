#include "worker/engine/thinking_budget.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace troupe {

namespace {

// A line break before a mark is the mark's where it is there; it need not be.
std::string_view bare_end(const ThoughtForm& form) {
  const auto found = std::find_if(form.closes.begin(), form.closes.end(),
                                  [](std::string_view mark) { return mark.front() != '\n'; });
  return found == form.closes.end() ? std::string_view() : *found;
}

// Whether the tokens' text ends a thought with its last token, and not before.
bool ends_thought(const Tokenizer& tokenizer, const ThoughtForm& form, const std::vector<TokenId>& tokens) {
  ThoughtSplitter thoughts(form, /*in_thought=*/true, {});
  std::string thought, rest;
  thoughts.push("a", thought, rest);
  for (const TokenId token : tokens) {
    if (!thoughts.in_thought()) return false;
    thoughts.push(tokenizer.token_bytes(token, /*skip_special=*/false), thought, rest);
  }
  return !thoughts.in_thought() && thought == "a" && rest.empty();
}

// As in the automaton of Knuth, Morris and Pratt.
std::vector<size_t> fallbacks_of(const std::vector<TokenId>& tokens) {
  std::vector<size_t> fallbacks(tokens.size() + 1, 0);
  size_t matched = 0;
  for (size_t i = 1; i < tokens.size(); ++i) {
    while (matched > 0 && tokens[i] != tokens[matched]) matched = fallbacks[matched];
    if (tokens[i] == tokens[matched]) ++matched;
    fallbacks[i + 1] = matched;
  }
  return fallbacks;
}

}  // namespace

std::vector<TokenId> thought_end_tokens(const Tokenizer& tokenizer, const ThoughtForm& form) {
  const std::string_view mark = bare_end(form);
  constexpr std::string_view kBefore = "a";  // so that the mark begins no text
  const auto before = tokenizer.encode(kBefore, /*add_special=*/false);
  EncodeOptions options;
  options.boundary = kBefore.size();
  auto both = tokenizer.encode(std::string(kBefore) + std::string(mark), options);
  if (mark.empty() || !before.ok() || !both.ok() || both->size() <= before->size()) return {};
  const std::vector<TokenId> end(both->begin() + static_cast<ptrdiff_t>(before->size()), both->end());
  return ends_thought(tokenizer, form, end) ? end : std::vector<TokenId>();
}

ThinkingBudget::ThinkingBudget(const Tokenizer* tokenizer, std::shared_ptr<const ThinkingLimit> limit)
    : tokenizer_(tokenizer), limit_(std::move(limit)), fallbacks_(fallbacks_of(limit_->end)) {
  restart({});
}

void ThinkingBudget::restart(std::span<const TokenId> answer) {
  const AnswerSyntax& syntax = limit_->syntax;
  thoughts_.emplace(*syntax.thoughts, syntax.in_thought, thought_ending_calls(syntax));
  matched_ = 0;
  token_count_ = 0;
  last_was_forced_ = false;
  for (const TokenId token : answer) push(token);
}

void ThinkingBudget::push(TokenId token) {
  last_was_forced_ = forced().has_value();
  if (!thoughts_->may_think()) return;
  const bool was_in_thought = thoughts_->in_thought();
  const auto* const shown = limit_->shown_special.get();
  const bool is_text = !tokenizer_->is_special(token) ||
                       (shown != nullptr && std::binary_search(shown->begin(), shown->end(), token));
  std::string thought, rest;
  if (is_text) thoughts_->push(tokenizer_->token_bytes(token, /*skip_special=*/false), thought, rest);
  if (!was_in_thought || !thoughts_->in_thought()) {  // a mark's token
    matched_ = 0;
    return;
  }
  ++token_count_;
  const std::vector<TokenId>& end = limit_->end;
  while (matched_ > 0 && end[matched_] != token) matched_ = fallbacks_[matched_];
  if (end[matched_] == token) ++matched_;
  if (matched_ == end.size()) matched_ = fallbacks_[matched_];
}

std::optional<TokenId> ThinkingBudget::forced() const {
  if (!thoughts_->in_thought() || token_count_ < limit_->token_count_max) return std::nullopt;
  return limit_->end[matched_];
}

bool ThinkingBudget::may_force_within(int32_t count) const {
  return thoughts_->may_think() && int64_t{token_count_} + count >= limit_->token_count_max;
}

}  // namespace troupe
