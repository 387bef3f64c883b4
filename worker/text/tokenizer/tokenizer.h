#pragma once

// Text ↔ token ids, by the tokenizer.json or tokenizer.model of a model directory. Components that are not
// supported are refused by name. Immutable after load, so safe to use from many threads.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "common/json/json.h"

namespace troupe {

class TokenCache;

// Ids one after the other → text. Put together, what push() and finish() give is what decode() gives for all
// of them. Not thread-safe; one a text.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  // The text that is certain now: whole characters, and nothing a later token may change.
  virtual std::string push(int32_t id) = 0;
  // Whether tokens pushed so far may give more text.
  virtual bool holds_back() const = 0;
  // The end: the rest.
  virtual std::string finish() = 0;
};

class Tokenizer {
 public:
  // Reads <dir>/tokenizer.json or, where there is none, <dir>/tokenizer.model with the special tokens of
  // <dir>/tokenizer_config.json and added_tokens.json. Errors name file, component and reason.
  static StatusOr<std::unique_ptr<Tokenizer>> load(const std::string& model_dir);
  // From tokenizer.json's text (tests, fuzzing).
  static StatusOr<std::unique_ptr<Tokenizer>> from_json(std::string_view json, std::string_view file_name);
  // From tokenizer.model's bytes and tokenizer_config.json (an empty object: special strings are plain text,
  // nothing is put around a text).
  static StatusOr<std::unique_ptr<Tokenizer>> from_sentencepiece(std::string_view model,
                                                                 const bj::object& config,
                                                                 std::string_view file_name);
  ~Tokenizer();

  // add_special: what the files put around a text (BOS/EOS). Special strings in the text become their ids.
  // Invalid UTF-8 is an error. `cache`, this tokenizer's own, changes the time it takes and nothing else.
  StatusOr<std::vector<int32_t>> encode(std::string_view text, bool add_special,
                                        TokenCache* cache = nullptr) const;
  // Bytes of one token as they come out of the decoder in the middle of a text; may be part of a UTF-8
  // character. Special tokens: empty if skip_special. REQUIRES: 0 <= id < vocab_size() or empty is returned.
  std::string_view token_bytes(int32_t id, bool skip_special) const;
  // The token as the vocabulary spells it ("Ġhello"); empty for an id that has none.
  std::string_view token_text(int32_t id) const;
  // Whole decode; invalid UTF-8 becomes U+FFFD.
  std::string decode(const std::vector<int32_t>& ids, bool skip_special) const;
  // The same token by token. `at_start`: the ids begin a text; otherwise they go on with one, and a space at
  // their beginning is a space. The tokenizer must outlive the stream.
  std::unique_ptr<TokenStream> stream(bool skip_special, bool at_start = true) const;

  int32_t vocab_size() const;  // highest id + 1
  bool is_special(int32_t id) const;
  std::optional<int32_t> token_to_id(std::string_view token) const;

  struct Impl;  // tokenizer_impl.h

 private:
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  static StatusOr<std::unique_ptr<Tokenizer>> wrap(StatusOr<std::unique_ptr<Impl>> impl,
                                                   std::string_view file_name);

  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
