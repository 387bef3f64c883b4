#include "worker/engine/answer_grammar.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe {

namespace {

constexpr size_t kForcedBytesMax = 256;  // that are looked at at a time

}  // namespace

GrammarState::GrammarState(const AnswerGrammar& grammar, const std::vector<TokenId>& stop_token_ids,
                           bool ignores_ends, std::span<const TokenId> sent)
    : matcher_(grammar.compiled),
      ignores_ends_(ignores_ends),
      vocabulary_ends_(grammar.compiled->vocabulary().end_tokens()),
      mask_(grammar.compiled->vocabulary().mask_words()) {
  const grammar::Vocabulary& vocabulary = grammar.compiled->vocabulary();
  for (const TokenId token : stop_token_ids) {
    const bool is_known = token >= 0 && static_cast<size_t>(token) < vocabulary.size();
    if (is_known && grammar::is_mark_or_empty(vocabulary.text(token))) ends_.push_back(token);
  }
  if (!grammar.begun.empty()) {
    const auto accepted = matcher_.accept_text(grammar.begun);
    if (!accepted.ok() || !*accepted) fail(accepted.status());
    first_step_ = matcher_.step_count();
  }
  for (const TokenId token : sent) accept(token);
}

void GrammarState::fail(const Status& status) {
  if (!error_.ok()) return;
  error_ = absl::FailedPreconditionError(
      status.ok() ? std::string("the answer does not follow its grammar")
                  : absl::StrCat("the answer cannot go on under its grammar: ", status.message()));
}

void GrammarState::fill_mask() {
  if (error_.ok()) {
    if (const Status status = matcher_.fill_mask(mask_); !status.ok()) fail(status);
  }
  if (!error_.ok()) {
    std::fill(mask_.begin(), mask_.end(), 0u);
    return;
  }
  if (ignores_ends_) {
    for (const TokenId token : vocabulary_ends_)
      mask_[static_cast<size_t>(token) / 32] &= ~(1u << (token % 32));
  }
  if (!ends_.empty() && matcher_.is_accepting()) {
    for (const TokenId token : ends_) allow(token);
  }
}

// (An error comes again with the mask of the draw.)
ForcedText GrammarState::forced_text() {
  ForcedText text;
  if (!error_.ok()) return text;
  const auto forced = matcher_.forced_bytes(kForcedBytesMax);
  if (!forced.ok() || forced->empty()) return text;
  text.bytes = forced->substr(0, forced->find(grammar::kMarkByte));
  if (text.bytes.size() < forced->size() || !matcher_.accept_text(text.bytes).value_or(false)) return text;
  text.completes = matcher_.is_finished();
  matcher_.rollback(1);
  return text;
}

void GrammarState::accept(TokenId token) {
  if (!error_.ok() || std::find(ends_.begin(), ends_.end(), token) != ends_.end()) return;
  const auto accepted = matcher_.accept(token);
  if (!accepted.ok() || !*accepted) fail(accepted.status());
}

void GrammarState::rewind_to(size_t token_count) {
  const size_t kept = first_step_ + token_count;
  if (matcher_.step_count() > kept) matcher_.rollback(matcher_.step_count() - kept);
}

bool GrammarState::is_finished() {
  return error_.ok() && matcher_.is_finished();
}

Status GrammarState::draw_error() const {
  if (!error_.ok()) return error_;
  return absl::FailedPreconditionError(
      "every token that the answer's grammar allows next is banned, or the model computed logits that are no "
      "numbers");
}

}  // namespace troupe
