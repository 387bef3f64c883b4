#include "worker/text/tokenizer/tokenizer.h"

#include <algorithm>
#include <boost/json/object.hpp>

#include "absl/strings/str_cat.h"
#include "common/core/regular_file.h"
#include "worker/text/tokenizer/tokenizer_impl.h"
#include "worker/text/unicode.h"

namespace troupe {
namespace {

// A SentencePiece model of a million pieces takes a tenth of this.
constexpr size_t kModelBytesMax = size_t{64} << 20;

StatusOr<std::string> read_model_file(const std::string& path) {
  auto bytes = read_regular_file(path, kModelBytesMax);
  if (bytes.ok() && bytes->empty()) return invalid_argument(path + ": is empty");
  return bytes;
}

}  // namespace

TextSides sides_of(std::string_view text, const EncodeOptions& options) {
  const size_t boundary = std::min(options.boundary.value_or(text.size()), text.size());
  TextSides sides{text.substr(0, boundary), text.substr(boundary), {}};
  for (const size_t cut : options.cuts) {
    if (cut > boundary) sides.cuts_behind.push_back(cut - boundary);
  }
  return sides;
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::wrap(StatusOr<std::unique_ptr<Impl>> impl,
                                                     std::string_view file_name) {
  if (!impl.ok()) return annotate(impl.status(), file_name);
  return std::unique_ptr<Tokenizer>(new Tokenizer(*std::move(impl)));
}

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::string& model_dir) {
  std::string json_path = model_dir + "/tokenizer.json";
  std::string model_path = model_dir + "/tokenizer.model";
  if (path_exists(json_path)) {
    TROUPE_ASSIGN_OR_RETURN(bj::value root, read_json_file(json_path));
    TROUPE_ASSIGN_OR_RETURN(TokenizerConfig config, TokenizerConfig::read(model_dir, root));
    return wrap(load_json_tokenizer(root, std::move(config)), json_path);
  }
  if (!path_exists(model_path)) {
    return absl::NotFoundError(
        absl::StrCat(json_path, ": not found, and no tokenizer.model beside it: one of the two is needed"));
  }
  TROUPE_ASSIGN_OR_RETURN(std::string model, read_model_file(model_path));
  TROUPE_ASSIGN_OR_RETURN(TokenizerConfig config, TokenizerConfig::read(model_dir, bj::value()));
  return wrap(load_spm_tokenizer(model, std::move(config)), model_path);
}

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::from_json(std::string_view json, std::string_view file_name) {
  StatusOr<bj::value> root = parse_json(json);
  if (!root.ok()) return annotate(root.status(), file_name);
  return wrap(load_json_tokenizer(*root, TokenizerConfig()), file_name);
}

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::from_sentencepiece(std::string_view model,
                                                                   const bj::object& config,
                                                                   std::string_view file_name) {
  TokenizerFiles files;
  if (!config.empty()) files.config = config;
  TROUPE_ASSIGN_OR_RETURN(TokenizerConfig loaded, TokenizerConfig::load(files, bj::value()));
  return wrap(load_spm_tokenizer(model, std::move(loaded)), file_name);
}

StatusOr<std::vector<int32_t>> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (!is_valid_utf8(text)) return invalid_argument("text is not valid UTF-8");
  std::vector<int32_t> ids;
  TROUPE_RETURN_IF_ERROR(impl_->encode(text, options, ids));
  return ids;
}

StatusOr<std::vector<int32_t>> Tokenizer::encode(std::string_view text, bool add_special,
                                                 TokenCache* cache) const {
  return encode(text, EncodeOptions{add_special, cache, {}, std::nullopt});
}

std::vector<size_t> Tokenizer::cuts_of_special(std::string_view text) const {
  return impl_->special_tokens->cuts_of_special(text);
}

std::vector<TokenPlace> Tokenizer::places_of_special(std::string_view text) const {
  return impl_->special_tokens->places(text);
}

std::string_view Tokenizer::token_bytes(int32_t id, bool skip_special) const {
  if (id < 0 || id >= vocab_size() || (skip_special && is_special(id))) return {};
  return impl_->bytes[static_cast<size_t>(id)];
}

std::unique_ptr<TokenStream> Tokenizer::stream(bool skip_special, bool at_start) const {
  return impl_->stream(skip_special, at_start);
}

std::string_view Tokenizer::token_text(int32_t id) const {
  return id < 0 || id >= vocab_size() ? std::string_view() : impl_->texts[static_cast<size_t>(id)];
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::unique_ptr<TokenStream> tokens = stream(skip_special);
  std::string text;
  for (int32_t id : ids) text += tokens->push(id);
  return text + tokens->finish();
}

const TokenizerConfig& Tokenizer::config() const {
  return impl_->config;
}

int32_t Tokenizer::vocab_size() const {
  return static_cast<int32_t>(impl_->bytes.size());
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->special[static_cast<size_t>(id)];
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  return impl_->token_to_id(token);
}

}  // namespace troupe
