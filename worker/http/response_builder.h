#pragma once

// Builds the answer to a request's choices: engine pieces go in, chunks of a stream or one whole answer come
// out. No I/O. Of several prompts the choices of the first come first. A choice's first piece puts its echoed
// prompt before its own text; usage counts each prompt once and every choice's tokens. A prompt is scored for
// its first choice only: if its log-probabilities are reported, the pieces of its other choices wait for the
// first piece of that one. Thoughts and calls are parsed out of a chat's text; pieces that say nothing (the
// beginning of what may be a call) go out with the next one, so that the ids of a stream's chunks are always
// those behind what it has said.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/api/api.h"
#include "common/net/http_message.h"
#include "worker/engine/engine.h"
#include "worker/input/prepared_request.h"
#include "worker/input/prompt_echo.h"
#include "worker/text/answer/answer_parser.h"

namespace troupe {

class Answer {
 public:
  struct Options {
    AnswerHeader header;
    int32_t prompt_count = 1;
    int32_t choice_count = 1;              // of each prompt
    int32_t best_count = 0;                // of these, in a whole answer, the best first; 0: all, in order
    ChunkUsage usage = ChunkUsage::kNone;  // in the chunks of a stream; but for kNone the last has its own
    bool wants_logprobs = false;
    std::vector<EchoedPrompt> echoes;  // of each prompt, or empty
    bool includes_token_ids =
        false;  // in every chunk; the seed in a choice's first, the usage in the last of all
    uint64_t seed = 0;
    bool begun = false;  // a resumed answer of one choice: no role, no echo
    AnswerSyntax syntax = {};
    PromptPlaces places = {};
  };
  explicit Answer(Options options);

  // Each answer uses one of the two for all of its pieces. REQUIRES: the piece is no error.
  void append_chunks(std::string& out, EngineOutput piece);  // the last piece's chunks end with [DONE]
  void collect(EngineOutput piece);

  bool includes_token_ids() const { return options_.includes_token_ids; }
  // Headers about the prompt, of what is known: x-truncated-messages at once, x-cache-break from the first
  // piece on.
  HeaderList headers() const;
  // Returns whether every choice has had its last piece.
  bool done() const { return open_count_ == 0; }
  // Returns the collected answer. REQUIRES: done().
  std::string whole_json() const;

 private:
  struct State {
    bool begun = false;  // a piece of it was sent
    bool has_sent_seed = false;
    FinishReason finish = FinishReason::kNone;
    StopReason stop;
    double logprob = 0;         // of its tokens, in all
    int64_t logprob_count = 0;  // of tokens in it
    Usage usage;                // as last reported
    std::string text;
    std::vector<TokenLogprob> logprobs;
    std::unique_ptr<AnswerParser> parser;  // null: all of the text is content
    std::string reasoning;                 // of a whole answer, as `text`
    std::vector<ToolCall> calls;           // likewise
    std::vector<TokenId> held_ids;         // of a stream's pieces that have said nothing yet
  };
  struct Prompt {
    bool waits_for_first = false;     // choice, which brings the scores
    std::vector<EngineOutput> early;  // pieces of its other choices that came before that
    std::vector<TokenLogprob> logprobs;
  };
  size_t prompt_of(const EngineOutput& piece) const {
    return static_cast<size_t>(piece.choice / options_.choice_count);
  }
  bool is_first_of_prompt(const EngineOutput& piece) const {
    return piece.choice % options_.choice_count == 0;
  }
  template <typename Give>
  void in_turn(EngineOutput piece, Give give);
  // Counts the piece and puts the echo before it; afterwards `piece`
  // holds its final text and log-probabilities.
  State& take(EngineOutput& piece);
  void put_echo_before(EngineOutput& piece, const EchoedPrompt& echo) const;
  // Takes the piece's text apart, and counts the thoughts' tokens.
  AnswerDelta parse(State& state, EngineOutput& piece);
  // Indexes of the states that a whole answer returns, in its order.
  std::vector<size_t> returned() const;
  void collect_parsed(State& state, EngineOutput& piece);
  void append_chunk(std::string& out, EngineOutput piece);

  const Options options_;
  std::vector<State> states_;
  std::vector<Prompt> prompts_;
  size_t open_count_;
  Usage usage_;
};

}  // namespace troupe
