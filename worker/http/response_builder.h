#pragma once

// What is told of a request's choices: pieces of the engine's go in, chunks of a stream or one whole answer
// come out. No I/O. A choice's first piece brings the echoed prompt before its own text; usage counts the
// prompt once and every choice's tokens. The prompt is scored for the first choice alone: where its
// log-probabilities are told, the others' pieces wait for that one's first.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/api/api.h"
#include "worker/engine/engine.h"
#include "worker/input/prompt_echo.h"

namespace troupe {

class Answer {
 public:
  struct Options {
    AnswerHeader header;
    int32_t choice_count = 1;
    bool include_usage = false;
    bool wants_logprobs = false;
    std::optional<EchoedPrompt> echo;
    bool tells_ids = false;  // in every chunk, the seed in a choice's first, and the usage in the last of all
    uint64_t seed = 0;
    bool begun = false;  // an answer of one choice goes on: no role, no echo
  };
  explicit Answer(Options options);

  // One of the two, piece by piece; REQUIRES: the piece is no error.
  void append_chunks(std::string& out, EngineOutput piece);  // the last piece's end with [DONE]
  void collect(EngineOutput piece);

  bool tells_ids() const { return options_.tells_ids; }
  // Every choice has had its last piece.
  bool done() const { return open_count_ == 0; }
  // What was collected. REQUIRES: done().
  std::string whole_json() const;

 private:
  struct State {
    bool begun = false;  // a piece of it was told
    bool has_told_seed = false;
    FinishReason finish = FinishReason::kNone;
    int64_t completion_tokens = 0;
    std::string text;
    std::vector<TokenLogprob> logprobs;
  };
  template <typename Give>
  void in_turn(EngineOutput piece, Give give);
  // Counts the piece and puts the echo before it; what is then its text and log-probabilities stays in it.
  State& take(EngineOutput& piece);
  void put_echo_before(EngineOutput& piece) const;
  void append_chunk(std::string& out, EngineOutput piece);

  const Options options_;
  std::vector<State> states_;
  size_t open_count_;
  Usage usage_;
  bool waits_for_first_;             // choice 0, which brings the prompt's scores
  std::vector<EngineOutput> early_;  // pieces of others before it
  std::vector<TokenLogprob> prompt_logprobs_;
};

}  // namespace troupe
