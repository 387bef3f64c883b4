#include "worker/input/prepare_resume.h"

#include <algorithm>
#include <string>
#include <utility>

#include "worker/engine/output_pipeline.h"
#include "worker/input/prepare_grammar.h"
#include "worker/text/tokenizer/detokenizer.h"

namespace troupe {

namespace {

constexpr std::string_view kIdsField = "troupe_resume.ids";

bool contains(const std::vector<int32_t>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

ApiError id_error(size_t index, const std::string& why) {
  return ApiError::bad_field(std::string(kIdsField) + "[" + std::to_string(index) + "]", why);
}

// State after the replayed ids: how the answer ended, if it did, and
// else how many of the last ids have incomplete text.
struct Replay {
  FinishReason ended = FinishReason::kNone;
  StopReason stopped_by;
  size_t unsent_count = 0;
  std::vector<std::pair<std::string, int32_t>> pieces;  // text that was sent, and the number of its ids
};

ApiResult<Replay> replay(const ServedModel& model, const EngineRequest& request,
                         const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(
      model.tokenizer, request.stop_strings,
      {.at_start = !request.continues_text, .keeps_offsets = true, .shown_special = request.shown_special});
  Replay result;
  int32_t id_count = 0;  // since the last piece
  for (size_t i = 0; i < ids.size(); ++i) {
    if (result.ended != FinishReason::kNone) {
      return id_error(i,
                      "comes behind the end of the answer: the ids before it complete a stop string or "
                      "hold a token that ends it");
    }
    const bool is_end = !request.ignore_eos && contains(model.config.eos_token_ids, ids[i]);
    const bool stops = is_end || contains(request.stop_token_ids, ids[i]);
    std::string text = stops ? std::string() : detokenizer.push(ids[i]);
    ++id_count;
    // As the engine's pieces come.
    if (!text.empty() || i == 0) result.pieces.emplace_back(std::move(text), std::exchange(id_count, 0));
    if (stops || detokenizer.stopped()) result.ended = FinishReason::kStop;
    if (stops && !is_end) result.stopped_by = stop_of_token(*model.tokenizer, request.stop_strings, ids[i]);
  }
  result.unsent_count = ids.size() - detokenizer.take_offsets().size();
  if (result.ended == FinishReason::kNone && static_cast<int64_t>(ids.size()) >= request.max_new_count) {
    // The held-back rest may complete a stop string.
    detokenizer.finish();
    result.ended = detokenizer.stopped() ? FinishReason::kStop : FinishReason::kLength;
  }
  if (detokenizer.stopped()) result.stopped_by = detokenizer.stop_string();
  return result;
}

}  // namespace

std::optional<ApiError> take_resume(const ServedModel& model, const ResumedStream& resume, int64_t count_max,
                                    PreparedRequest& prepared) {
  if (static_cast<int64_t>(resume.ids.size()) > count_max) {
    return ApiError::bad_field(kIdsField, "holds " + std::to_string(resume.ids.size()) +
                                              " ids, more than the " + std::to_string(count_max) +
                                              " that this answer may have");
  }
  for (size_t i = 0; i < resume.ids.size(); ++i) {
    if (resume.ids[i] < model.config.vocab_size) continue;
    return id_error(i, "token id " + std::to_string(resume.ids[i]) + " is outside the vocabulary [0, " +
                           std::to_string(model.config.vocab_size) + ")");
  }
  auto replayed = replay(model, prepared.engine, resume.ids);
  if (!replayed.ok()) return replayed.error();
  if (prepared.engine.grammar.compiled != nullptr && replayed->ended != FinishReason::kStop) {
    auto ends = ends_grammar(prepared.engine.grammar, resume.ids, kIdsField);
    if (!ends.ok()) return ends.error();
    if (*ends) replayed->ended = FinishReason::kStop;
  }
  if (prepared.syntax.parses()) prepared.syntax.sent = std::move(replayed->pieces);
  prepared.ended = replayed.value().ended;
  prepared.stopped_by = std::move(replayed.value().stopped_by);
  prepared.begun = !resume.ids.empty();
  prepared.id = resume.id;
  prepared.created_s = resume.created_s;
  prepared.engine.emitted = resume.ids;
  prepared.engine.prompt_logprobs = prepared.engine.prompt_logprobs && !prepared.begun;
  if (prepared.engine.logprobs) {
    prepared.engine.unsent_logprobs = static_cast<int32_t>(replayed.value().unsent_count);
  }
  return std::nullopt;
}

}  // namespace troupe
