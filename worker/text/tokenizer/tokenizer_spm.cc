// Encodes a tokenizer.model through the SentencePiece library, with Transformers' rules around it:
// special tokens are split out of the text first, the stretches between them go to the library, BOS and
// EOS come last.
//
// Decoding is our own. The library decodes a list at once; a stream needs the same token by token, and a
// piece's text depends only on whether anything came before it (the leading space) and, for bytes, on the
// bytes around it.

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/core/work_limit.h"
#include "worker/text/tokenizer/added_tokens.h"
#include "worker/text/tokenizer/spm_encoder.h"
#include "worker/text/tokenizer/spm_model.h"
#include "worker/text/tokenizer/tokenizer_impl.h"
#include "worker/text/tokenizer/word_cuts.h"
#include "worker/text/unicode.h"

namespace troupe {
namespace {

constexpr std::string_view kSpaceSymbol = kWordSymbol;
// Kinds of cached text: a stretch or its first part, and a later part.
constexpr uint8_t kStretch = 0, kLaterPart = 1;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct SpmTokenizer final : Tokenizer::Impl {
  Status load(std::string_view model_bytes, TokenizerConfig given);
  Status encode(std::string_view text, const EncodeOptions& options,
                std::vector<int32_t>& ids) const override;
  std::unique_ptr<TokenStream> stream(bool skip_special, bool at_start) const override;
  std::optional<int32_t> token_to_id(std::string_view token) const override;

  Status load_encoders(std::string_view model_bytes);
  void take_pieces();
  Status resolve_added();
  void index_ids();
  StatusOr<std::optional<int32_t>> around(bool is_added, std::string_view name, std::string_view usual) const;
  // The text before a stretch: nothing, an added token, or text of another side of a boundary.
  enum class Before : uint8_t { kNothing, kToken, kText };
  Status encode_side(std::string_view text, Before before, std::span<const size_t> cuts, TokenCache* cache,
                     std::vector<int32_t>& ids) const;
  Status encode_stretch(std::string_view stretch, Before before, std::vector<int32_t>& ids) const;
  Status encode_later(std::string_view part, std::vector<int32_t>& ids) const;
  Status encode_open(std::string_view stretch, bool at_start, TokenCache& cache,
                     std::vector<int32_t>& ids) const;

  SpmModel model;
  // Searched in the text before SentencePiece sees it.
  std::vector<AddedToken> added;
  // Transformers' treatments of the text between two special tokens. Legacy: each stretch is a separate text
  // with the model's leading space. Otherwise only the beginning of the text gets one. Where that is not the
  // library's own doing, a stretch that begins with a space gets none.
  bool by_library() const { return is_legacy && !config.is_llama; }
  bool is_legacy = true;
  bool adds_prefix_space = true;
  int32_t ids_end = 0;  // of the ids that a file gives
  absl::flat_hash_map<std::string, int32_t> ids_by_token;
  absl::flat_hash_map<int32_t, const AddedToken*> added_by_id;
  std::unique_ptr<AddedTokenMatcher> matcher;
  std::unique_ptr<SpmEncoder> encoder;        // with the model's own settings
  std::unique_ptr<SpmEncoder> plain_encoder;  // without the leading space
  bool has_word_cuts = false;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
};

class SpmStream final : public TokenStream {
 public:
  SpmStream(const SpmTokenizer* tokenizer, bool skip_special, bool at_start)
      : tokenizer_(tokenizer), skip_special_(skip_special), at_start_(at_start) {}

  std::string push(int32_t id) override {
    std::string out;
    const auto& pieces = tokenizer_->model.pieces;
    auto added = tokenizer_->added_by_id.find(id);
    if (added != tokenizer_->added_by_id.end()) {
      push_added(*added->second, out);
    } else if (id >= 0 && static_cast<size_t>(id) < pieces.size()) {
      push_piece(pieces[static_cast<size_t>(id)], out);
    }
    return out;
  }

  bool holds_back() const override { return !bytes_.empty(); }

  std::string finish(bool keeps_cut_character) override {
    std::string out;
    if (!keeps_cut_character) bytes_ = without_cut_character(bytes_);
    release_bytes(true, out);
    return out;
  }

 private:
  void push_added(const AddedToken& token, std::string& out) {
    if (token.special && skip_special_) return;
    release_bytes(true, out);
    append(token.content, out);
  }

  void push_piece(const SpmPiece& piece, std::string& out) {
    if (piece.type == SpmPiece::Type::kByte) {
      bytes_.push_back(static_cast<char>(piece.byte));
      release_bytes(false, out);
      return;
    }
    release_bytes(true, out);
    if (piece.type == SpmPiece::Type::kControl) return;
    std::string_view text = piece.text;
    if (piece.type == SpmPiece::Type::kUnknown) {
      append(tokenizer_->model.unknown_surface, out);
      return;
    }
    const SpmModel& model = tokenizer_->model;
    bool space_goes = at_start_ && (model.add_dummy_prefix || model.remove_extra_whitespaces) &&
                      text.substr(0, kSpaceSymbol.size()) == kSpaceSymbol;
    if (space_goes) text.remove_prefix(kSpaceSymbol.size());
    append(absl::StrReplaceAll(to_absl(text), {{to_absl(kSpaceSymbol), " "}}), out);
    // Drops one space, or all of them if the model never emits two in a row.
    if (space_goes && !model.remove_extra_whitespaces) at_start_ = false;
  }

  void append(std::string_view text, std::string& out) {
    out += text;
    if (!text.empty()) at_start_ = false;
  }

  // Releases the bytes of a run: a character as soon as it is whole, a U+FFFD for every byte outside of one.
  void release_bytes(bool at_end, std::string& out) {
    size_t pos = 0;
    while (pos < bytes_.size()) {
      Utf8Part part = first_utf8_part(std::string_view(bytes_).substr(pos));
      if (part.incomplete && !at_end) break;
      append(part.valid ? std::string_view(bytes_).substr(pos, part.size) : kReplacement, out);
      pos += part.valid ? part.size : 1;
    }
    bytes_.erase(0, pos);
  }

  const SpmTokenizer* tokenizer_;
  bool skip_special_;
  bool at_start_;      // no text yet
  std::string bytes_;  // rest of a run that is no whole character yet
};

Status SpmTokenizer::load_encoders(std::string_view model_bytes) {
  std::string error;
  encoder = SpmEncoder::load(model_bytes, error);
  if (encoder != nullptr) plain_encoder = SpmEncoder::load(without_dummy_prefix(model_bytes), error);
  return plain_encoder == nullptr ? invalid_argument("SentencePiece refuses the model: " + error) : Status();
}

// Without a list of the directory's, the model's own special pieces are tokens to be searched. (The library
// finds user-defined pieces itself; the classes with tokens of their own look for them first.)
void SpmTokenizer::take_pieces() {
  if (!config.has_config || config.lists_extra) return;
  config.extra.clear();
  for (const SpmPiece& piece : model.pieces) {
    const bool is_control = piece.type == SpmPiece::Type::kControl;
    if (!is_control && (config.is_generic || piece.type != SpmPiece::Type::kUserDefined)) continue;
    AddedToken token;
    token.id = -1;
    token.content = piece.text;
    token.special = is_control;
    config.extra.push_back(std::move(token));
  }
}

// Gives the added tokens their ids: the model's, the files', or the next ones.
Status SpmTokenizer::resolve_added() {
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    ids_by_token.emplace(model.pieces[id].text, static_cast<int32_t>(id));
  }
  ids_end = static_cast<int32_t>(model.pieces.size());
  added = config.listed;
  for (const AddedToken& token : added) ids_end = std::max(ids_end, token.id + 1);
  const auto id_of = [&](const std::string& token) { return token_to_id(token); };
  config.add_to(added, id_of, ids_end);
  std::vector<const AddedToken*> tokens;
  for (const AddedToken& token : added) {
    if (!added_by_id.emplace(token.id, &token).second) {
      return invalid_argument(absl::StrCat("added token \"", token.content, "\": id ", token.id,
                                           " is that of \"", added_by_id[token.id]->content, "\" already"));
    }
    ids_by_token[token.content] = token.id;
    if (!token.special || !config.splits_special) tokens.push_back(&token);
  }
  matcher = std::make_unique<AddedTokenMatcher>(tokens);
  std::erase_if(tokens, [](const AddedToken* token) { return !token->special; });
  special_tokens = std::make_unique<AddedTokenMatcher>(tokens);
  return {};
}

void SpmTokenizer::index_ids() {
  WordCuts cuts;
  for (const SpmPiece& piece : model.pieces) cuts.see(piece.text);
  has_word_cuts = cuts.ok() && model.is_bpe && model.charsmap.empty() && !model.remove_extra_whitespaces;
  size_t count = model.pieces.size();
  for (const AddedToken& token : added) count = std::max(count, static_cast<size_t>(token.id) + 1);
  bytes.resize(count);
  texts.resize(count);
  special.resize(count);
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SpmPiece& piece = model.pieces[id];
    texts[id] = piece.text;
    special[id] = piece.type == SpmPiece::Type::kControl;
    if (piece.type == SpmPiece::Type::kByte) {
      bytes[id] = std::string(1, static_cast<char>(piece.byte));
    } else if (piece.type == SpmPiece::Type::kUnknown) {
      bytes[id] = model.unknown_surface;
    } else if (piece.type != SpmPiece::Type::kControl) {
      bytes[id] = absl::StrReplaceAll(piece.text, {{to_absl(kSpaceSymbol), " "}});
    }
  }
  for (const AddedToken& token : added) {
    bytes[static_cast<size_t>(token.id)] = token.content;
    texts[static_cast<size_t>(token.id)] = token.content;
    special[static_cast<size_t>(token.id)] = token.special;
  }
}

// The id of a named token that goes around every text.
StatusOr<std::optional<int32_t>> SpmTokenizer::around(bool is_added, std::string_view name,
                                                      std::string_view usual) const {
  if (!is_added) return std::optional<int32_t>();
  const std::string content = config.named_text(name).value_or(std::string(usual));
  const std::optional<int32_t> id = token_to_id(content);
  if (id && *id < ids_end) return id;
  return invalid_argument(absl::StrCat("tokenizer_config.json puts \"", content,
                                       "\" around every text, but no file gives it an id"));
}

Status SpmTokenizer::load(std::string_view model_bytes, TokenizerConfig given) {
  config = std::move(given);
  is_legacy = config.is_legacy.value_or(true);
  TROUPE_ASSIGN_OR_RETURN(model, SpmModel::parse(model_bytes));
  adds_prefix_space = config.is_llama ? config.adds_prefix_space.value_or(true) : model.add_dummy_prefix;
  TROUPE_RETURN_IF_ERROR(load_encoders(model_bytes));
  take_pieces();
  TROUPE_RETURN_IF_ERROR(resolve_added());
  index_ids();
  TROUPE_ASSIGN_OR_RETURN(bos_id, around(config.adds_bos.value_or(false), "bos_token", "<s>"));
  TROUPE_ASSIGN_OR_RETURN(eos_id, around(config.adds_eos.value_or(false), "eos_token", "</s>"));
  return {};
}

Status SpmTokenizer::encode_stretch(std::string_view stretch, Before before,
                                    std::vector<int32_t>& ids) const {
  TROUPE_RETURN_IF_ERROR(count_work(stretch.size()));
  std::string error;
  bool ok = false;
  const bool has_space = stretch.starts_with(' ') || stretch.starts_with(kSpaceSymbol);
  if (before == Before::kText) {
    // Where the library takes leading spaces away, it has to put one back.
    const bool loses_space = has_space && model.remove_extra_whitespaces && model.add_dummy_prefix;
    ok = (loses_space ? encoder : plain_encoder)->encode(stretch, ids, error);
  } else if (by_library()) {
    ok = encoder->encode(stretch, ids, error);
  } else if ((is_legacy || before == Before::kNothing) && adds_prefix_space && !has_space) {
    ok = plain_encoder->encode(absl::StrCat(to_absl(kSpaceSymbol), to_absl(stretch)), ids, error);
  } else {
    ok = plain_encoder->encode(stretch, ids, error);
  }
  return ok ? Status() : absl::InternalError("SentencePiece cannot encode the text: " + error);
}

// Encodes a part that begins with a space and follows another part: neither the text's nor
// the stretch's first.
Status SpmTokenizer::encode_later(std::string_view part, std::vector<int32_t>& ids) const {
  if (by_library() && model.add_dummy_prefix) part.remove_prefix(1);  // the library adds one there
  return encode_stretch(part, Before::kToken, ids);
}

// Encodes a stretch that no added token ends: part by part, all but the last cached.
Status SpmTokenizer::encode_open(std::string_view stretch, bool at_start, TokenCache& cache,
                                 std::vector<int32_t>& ids) const {
  for (bool first = true; !stretch.empty(); first = false) {
    const std::string_view part = stretch.substr(0, first_part(stretch, " ", cache.part_bytes_min()));
    stretch.remove_prefix(part.size());
    const TokenCache::Key key{first ? kStretch : kLaterPart, first && at_start, part};
    TROUPE_RETURN_IF_ERROR(TokenCache::encode_once(&cache, key, !stretch.empty(), ids, [&] {
      const Before before = at_start ? Before::kNothing : Before::kToken;
      return first ? encode_stretch(part, before, ids) : encode_later(part, ids);
    }));
  }
  return {};
}

// Encodes what stands on one side of a boundary, `cuts` being its own.
Status SpmTokenizer::encode_side(std::string_view text, Before before, std::span<const size_t> cuts,
                                 TokenCache* cache, std::vector<int32_t>& ids) const {
  const std::vector<TextPart> parts = matcher->split(text, cuts);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].id >= 0) {
      ids.push_back(parts[i].id);
      continue;
    }
    const std::string_view part = parts[i].text;
    const Before before_part = part.data() == text.data() ? before : Before::kToken;
    if (before_part == Before::kText) {
      TROUPE_RETURN_IF_ERROR(encode_stretch(part, before_part, ids));
      continue;
    }
    const bool at_start = before_part == Before::kNothing;
    const bool closed = i + 1 < parts.size();
    if (cache != nullptr && !closed && has_word_cuts) {
      TROUPE_RETURN_IF_ERROR(encode_open(part, at_start, *cache, ids));
      continue;
    }
    const TokenCache::Key key{kStretch, at_start, part};
    TROUPE_RETURN_IF_ERROR(TokenCache::encode_once(cache, key, closed, ids,
                                                   [&] { return encode_stretch(part, before_part, ids); }));
  }
  return {};
}

Status SpmTokenizer::encode(std::string_view text, const EncodeOptions& options,
                            std::vector<int32_t>& ids) const {
  if (options.add_special && bos_id.has_value()) ids.push_back(*bos_id);
  const TextSides sides = sides_of(text, options);
  TROUPE_RETURN_IF_ERROR(encode_side(sides.before, Before::kNothing, options.cuts, options.cache, ids));
  const bool ends_with_added = !ids.empty() && added_by_id.contains(ids.back());
  const Before behind = sides.before.empty() ? Before::kNothing
                        : ends_with_added    ? Before::kToken
                                             : Before::kText;
  TROUPE_RETURN_IF_ERROR(encode_side(sides.behind, behind, sides.cuts_behind, options.cache, ids));
  if (options.add_special && eos_id.has_value()) ids.push_back(*eos_id);
  return {};
}

std::unique_ptr<TokenStream> SpmTokenizer::stream(bool skip_special, bool at_start) const {
  return std::make_unique<SpmStream>(this, skip_special, at_start);
}

std::optional<int32_t> SpmTokenizer::token_to_id(std::string_view token) const {
  auto it = ids_by_token.find(to_absl(token));
  if (it == ids_by_token.end()) return std::nullopt;
  return it->second;
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer::Impl>> load_spm_tokenizer(std::string_view model,
                                                              TokenizerConfig config) {
  auto tokenizer = std::make_unique<SpmTokenizer>();
  TROUPE_RETURN_IF_ERROR(tokenizer->load(model, std::move(config)));
  return std::unique_ptr<Tokenizer::Impl>(std::move(tokenizer));
}

}  // namespace troupe
