#pragma once

// The interface that tokenizer.json (tokenizer_json.cc) and tokenizer.model (tokenizer_spm.cc) implement for
// Tokenizer, and the tables both fill.

#include "worker/text/tokenizer/added_tokens.h"
#include "worker/text/tokenizer/token_cache.h"
#include "worker/text/tokenizer/tokenizer.h"
#include "worker/text/tokenizer/tokenizer_config.h"

namespace troupe {

// A text's two sides of EncodeOptions::boundary; without one, nothing is behind. `cuts_behind` are offsets
// into `behind`.
struct TextSides {
  std::string_view before, behind;
  std::vector<size_t> cuts_behind;
};
TextSides sides_of(std::string_view text, const EncodeOptions& options);

struct Tokenizer::Impl {
  virtual ~Impl() = default;
  // Appends to `ids`. REQUIRES: valid UTF-8.
  virtual Status encode(std::string_view text, const EncodeOptions& options,
                        std::vector<int32_t>& ids) const = 0;
  virtual std::unique_ptr<TokenStream> stream(bool skip_special, bool at_start) const = 0;
  virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;

  TokenizerConfig config;               // with all extra tokens
  std::vector<std::string> bytes;       // by id: Tokenizer::token_bytes
  std::vector<std::string_view> texts;  // by id: Tokenizer::token_text, views into the files' data
  std::vector<bool> special;            // by id
  std::unique_ptr<AddedTokenMatcher> special_tokens;  // as a text has them that nothing has normalised
};

// Errors name the component, not the file.
StatusOr<std::unique_ptr<Tokenizer::Impl>> load_json_tokenizer(const bj::value& root, TokenizerConfig config);
StatusOr<std::unique_ptr<Tokenizer::Impl>> load_spm_tokenizer(std::string_view model, TokenizerConfig config);

}  // namespace troupe
