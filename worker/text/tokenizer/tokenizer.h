#pragma once

// Text ↔ token ids, by the tokenizer.json or tokenizer.model of a model directory. Unsupported components are
// refused by name. Immutable after load, so safe to use from many threads.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "common/json/json.h"
#include "worker/text/tokenizer/cut_text.h"

namespace troupe {

class TokenCache;
struct TokenizerConfig;

// Converts ids to text one by one. The outputs of push() and finish() together equal decode() of all ids. Not
// thread-safe; one a text.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  // Returns the text that is final: whole characters, and nothing a later token may change.
  virtual std::string push(int32_t id) = 0;
  // Whether the tokens pushed so far may yield more text.
  virtual bool holds_back() const = 0;
  // Ends the stream: returns the rest. A character that lacks its last bytes is U+FFFD there, or left out.
  virtual std::string finish(bool keeps_cut_character = true) = 0;
};

struct EncodeOptions {
  bool add_special = false;      // the files' BOS/EOS around the text
  TokenCache* cache = nullptr;   // this tokenizer's own; changes nothing but the time taken
  std::span<const size_t> cuts;  // places of the text that no special token spans (cut_text.h)
  // A place that no token spans, as between a prompt and its answer: the text behind it is encoded as what an
  // answer's tokens decode to, in tokens of its own that go on with the text before it.
  std::optional<size_t> boundary = std::nullopt;
};

class Tokenizer {
 public:
  // Reads <dir>/tokenizer.json or, without one, <dir>/tokenizer.model, and the files beside it
  // (tokenizer_config.h). Errors name file, component and reason.
  static StatusOr<std::unique_ptr<Tokenizer>> load(const std::string& model_dir);
  // Reads tokenizer.json's text (tests, fuzzing).
  static StatusOr<std::unique_ptr<Tokenizer>> from_json(std::string_view json, std::string_view file_name);
  // Reads tokenizer.model's bytes and tokenizer_config.json (an empty object: special strings are plain text,
  // nothing is added around a text).
  static StatusOr<std::unique_ptr<Tokenizer>> from_sentencepiece(std::string_view model,
                                                                 const bj::object& config,
                                                                 std::string_view file_name);
  ~Tokenizer();

  // Special strings in the text become their ids, but for cuts. Invalid UTF-8 is an error.
  StatusOr<std::vector<int32_t>> encode(std::string_view text, const EncodeOptions& options) const;
  StatusOr<std::vector<int32_t>> encode(std::string_view text, bool add_special,
                                        TokenCache* cache = nullptr) const;
  // The cuts that keep every special string of the text from becoming an id.
  std::vector<size_t> cuts_of_special(std::string_view text) const;
  // The special tokens that the text spells: the longest at each place, those that overlap included.
  std::vector<TokenPlace> places_of_special(std::string_view text) const;
  // Bytes of one token as the decoder emits them in the middle of a text; may be part of a UTF-8 character.
  // Empty for special tokens if skip_special, and unless 0 <= id < vocab_size().
  std::string_view token_bytes(int32_t id, bool skip_special) const;
  // The token in the vocabulary's spelling ("Ġhello"); empty for an id without one.
  std::string_view token_text(int32_t id) const;
  // Decodes all ids; invalid UTF-8 becomes U+FFFD.
  std::string decode(const std::vector<int32_t>& ids, bool skip_special) const;
  // Decodes token by token. `at_start`: the ids begin a text; otherwise they continue one, and a space at
  // their beginning is kept. The tokenizer must outlive the stream.
  std::unique_ptr<TokenStream> stream(bool skip_special, bool at_start = true) const;

  const TokenizerConfig& config() const;
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
