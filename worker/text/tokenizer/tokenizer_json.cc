// Combines the stages, in the order a text passes them: added tokens in the raw text, normalizer, added
// tokens in the normalised text, pre-tokenizer, model, post-processor. Each stage is a unit beside this file;
// here they are assembled and checked against each other.

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/core/work_limit.h"
#include "common/json/json.h"
#include "worker/text/json_fields.h"
#include "worker/text/tokenizer/added_tokens.h"
#include "worker/text/tokenizer/bpe.h"
#include "worker/text/tokenizer/cut_text.h"
#include "worker/text/tokenizer/decoder.h"
#include "worker/text/tokenizer/normalizer.h"
#include "worker/text/tokenizer/post_processor.h"
#include "worker/text/tokenizer/pre_tokenizer.h"
#include "worker/text/tokenizer/tokenizer_impl.h"
#include "worker/text/tokenizer/word_cuts.h"
#include "worker/text/unicode.h"

namespace troupe {

namespace {

// The stage that cut a cached stretch.
constexpr uint8_t kRawStage = 0, kNormalizedStage = 1, kWordStage = 2;

const bj::value& field_or_null(const JsonItem& item, std::string_view key) {
  static const bj::value kNull;
  const bj::value* value = find_field(item, key);
  return value == nullptr ? kNull : *value;
}

struct JsonTokenizer final : Tokenizer::Impl {
  Status load(const JsonItem& root, TokenizerConfig given);
  Status encode(std::string_view text, const EncodeOptions& options,
                std::vector<int32_t>& ids) const override;
  std::unique_ptr<TokenStream> stream(bool skip_special, bool at_start) const override;
  std::optional<int32_t> token_to_id(std::string_view token) const override;

  struct Work {
    Regex::Matcher matcher;
    Bpe::Scratch scratch;
    std::vector<int32_t>* ids = nullptr;
    TokenCache* cache = nullptr;
  };
  // `closed`: an added token ends it, so the cache keeps it whole. `goes_on`: no added token comes before it,
  // but text of another side of a boundary.
  struct Stretch {
    std::string_view text;
    bool at_start = false;
    bool goes_on = false;
    bool closed = false;
    std::vector<size_t> cuts;  // that a normalised token may not span
  };
  Status check_added() const;
  Status build_matchers();
  Status check_post_processor() const;
  void index_ids();
  bool ends_with_added(const std::vector<int32_t>& ids) const;
  Status encode_side(std::string_view text, bool at_start, std::span<const size_t> cuts, Work& work) const;
  Status encode_plain(TextPieces pieces, bool closed, Work& work) const;
  Status encode_piece(std::string_view piece, bool closed, Work& work) const;
  Status encode_between(const Stretch& stretch, Work& work) const;
  Status normalize(const Stretch& stretch, NormalizedText& out, std::vector<size_t>& cuts, Work& work) const;

  Normalizer normalizer;
  std::vector<AddedToken> added;
  std::vector<std::string> added_contents;  // text that matches each token, normalised if required
  absl::flat_hash_map<std::string, int32_t> added_ids;
  std::unique_ptr<AddedTokenMatcher> raw_tokens;         // "normalized": false
  std::unique_ptr<AddedTokenMatcher> normalized_tokens;  // the others
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::optional<Bpe> model;
  bool has_word_cuts = false;
  PostProcessor post_processor;
  Decoder decoder;
  std::vector<std::string> tokens;  // by id, as the decoder's input
  std::vector<bool> known;          // by id: some ids have no token
};

class JsonStream final : public TokenStream {
 public:
  JsonStream(const JsonTokenizer* tokenizer, bool skip_special, bool at_start)
      : tokenizer_(tokenizer), skip_special_(skip_special), text_(&tokenizer->decoder, at_start) {}

  std::string push(int32_t id) override {
    std::string out;
    auto index = static_cast<size_t>(id);
    if (id < 0 || index >= tokenizer_->tokens.size() || !tokenizer_->known[index]) return out;
    if (skip_special_ && tokenizer_->special[index]) return out;
    text_.push(tokenizer_->tokens[index], out);
    return out;
  }

  bool holds_back() const override { return text_.holds_back(); }

  std::string finish(bool keeps_cut_character) override {
    std::string out;
    text_.finish(keeps_cut_character, out);
    return out;
  }

 private:
  const JsonTokenizer* tokenizer_;
  bool skip_special_;
  Decoder::Stream text_;
};

Status JsonTokenizer::load(const JsonItem& root, TokenizerConfig given) {
  config = std::move(given);
  // "truncation" and "padding" are settings of the training script, not of the model: Transformers switches
  // both off before encoding, so they are ignored here.
  TROUPE_ASSIGN_OR_RETURN(normalizer, Normalizer::load(field_or_null(root, "normalizer"), "normalizer"));
  TROUPE_ASSIGN_OR_RETURN(added, load_added_tokens(field_or_null(root, "added_tokens"), "added_tokens"));
  TROUPE_ASSIGN_OR_RETURN(pre_tokenizer,
                          load_pre_tokenizer(field_or_null(root, "pre_tokenizer"), "pre_tokenizer"));
  TROUPE_ASSIGN_OR_RETURN(model, Bpe::load(field_or_null(root, "model"), "model"));
  TROUPE_ASSIGN_OR_RETURN(post_processor,
                          PostProcessor::load(field_or_null(root, "post_processor"), "post_processor"));
  TROUPE_ASSIGN_OR_RETURN(decoder, Decoder::load(field_or_null(root, "decoder"), "decoder"));
  TROUPE_RETURN_IF_ERROR(check_added());
  std::erase_if(added, [this](const AddedToken& token) {
    if (token.content.empty()) config.without_text.push_back(absl::StrCat("added_tokens, id ", token.id));
    return token.content.empty();
  });
  config.add_to(
      added, [&](const std::string& token) { return model->token_to_id(token); }, model->ids_end());
  for (const AddedToken& token : added) added_ids.emplace(token.content, token.id);
  TROUPE_RETURN_IF_ERROR(build_matchers());
  index_ids();
  return check_post_processor();
}

Status JsonTokenizer::check_added() const {
  absl::flat_hash_map<int32_t, std::string_view> owners;
  for (const auto& [token, id] : model->vocab()) owners.emplace(id, token);
  absl::flat_hash_set<std::string_view> contents;
  for (size_t i = 0; i < added.size(); ++i) {
    const AddedToken& token = added[i];
    if (token.content.empty()) continue;
    std::string where = absl::StrCat("added_tokens[", i, "] \"", token.content, "\"");
    if (!contents.insert(token.content).second) return invalid_argument(where + ": listed twice");
    std::optional<int32_t> in_vocab = model->token_to_id(token.content);
    if (in_vocab.has_value() && *in_vocab != token.id) {
      return invalid_argument(absl::StrCat(where, ": id ", token.id, ", but model.vocab says ", *in_vocab));
    }
    auto [owner, is_new] = owners.emplace(token.id, token.content);
    if (!is_new && owner->second != token.content) {
      return invalid_argument(
          absl::StrCat(where, ": id ", token.id, " is that of \"", to_absl(owner->second), "\" already"));
    }
  }
  return {};
}

void JsonTokenizer::index_ids() {
  WordCuts cuts;
  for (const auto& [token, id] : model->vocab()) cuts.see(token);
  has_word_cuts = cuts.ok() && !model->ignores_merges();
  int32_t ids_end = model->ids_end();
  for (const AddedToken& token : added) ids_end = std::max(ids_end, token.id + 1);
  auto count = static_cast<size_t>(ids_end);
  bytes.resize(count);
  texts.resize(count);
  special.resize(count);
  tokens.resize(count);
  known.resize(count);
  auto add = [&](int32_t id, std::string_view token) {
    auto index = static_cast<size_t>(id);
    bytes[index] = decoder.token_bytes(token);
    tokens[index] = token;
    known[index] = true;
  };
  for (const auto& [token, id] : model->vocab()) {
    add(id, token);
    texts[static_cast<size_t>(id)] = token;
  }
  for (size_t i = 0; i < added.size(); ++i) {
    // A normalised token is decoded from its normalised form, so that the decoder can undo it.
    add(added[i].id, added_contents[i]);
    texts[static_cast<size_t>(added[i].id)] = added[i].content;
    special[static_cast<size_t>(added[i].id)] = added[i].special;
  }
}

Status JsonTokenizer::check_post_processor() const {
  for (const std::vector<int32_t>* side : {&post_processor.before(), &post_processor.after()}) {
    for (int32_t id : *side) {
      if (static_cast<size_t>(id) >= bytes.size()) {
        return invalid_argument(
            absl::StrCat("post_processor: adds id ", id, ", the vocabulary ends at ", bytes.size() - 1));
      }
    }
  }
  return {};
}

Status JsonTokenizer::build_matchers() {
  std::vector<const AddedToken*> groups[2], specials;
  std::vector<std::string> contents[2];
  Regex::Matcher matcher;
  for (const AddedToken& token : added) {
    NormalizedText content{token.content};
    if (token.normalized) TROUPE_RETURN_IF_ERROR(normalizer.apply(content, matcher));
    added_contents.push_back(content.text);
    if (token.special && config.splits_special) continue;
    groups[token.normalized ? 1 : 0].push_back(&token);
    contents[token.normalized ? 1 : 0].push_back(std::move(content.text));
    if (token.special) specials.push_back(&token);
  }
  raw_tokens = std::make_unique<AddedTokenMatcher>(groups[0], contents[0]);
  normalized_tokens = std::make_unique<AddedTokenMatcher>(groups[1], contents[1]);
  special_tokens = std::make_unique<AddedTokenMatcher>(specials);
  return {};
}

// `closed`: the text around it is cached as a whole. A long piece of other text is looked up in parts.
Status JsonTokenizer::encode_piece(std::string_view piece, bool closed, Work& work) const {
  if (closed || work.cache == nullptr || !has_word_cuts) return model->encode(piece, work.scratch, *work.ids);
  while (!piece.empty()) {
    const std::string_view part =
        piece.substr(0, first_part(piece, kWordSymbol, work.cache->part_bytes_min()));
    piece.remove_prefix(part.size());
    const TokenCache::Key key{kWordStage, false, part};
    TROUPE_RETURN_IF_ERROR(TokenCache::encode_once(work.cache, key, !piece.empty(), *work.ids, [&] {
      return model->encode(part, work.scratch, *work.ids);
    }));
  }
  return {};
}

Status JsonTokenizer::encode_plain(TextPieces pieces, bool closed, Work& work) const {
  TROUPE_RETURN_IF_ERROR(pre_tokenizer->apply(pieces, work.matcher));
  for (size_t i = 0; i < pieces.count(); ++i) TROUPE_RETURN_IF_ERROR(encode_piece(pieces[i], closed, work));
  return {};
}

// `cuts` become those of the normalised text.
Status JsonTokenizer::normalize(const Stretch& stretch, NormalizedText& out, std::vector<size_t>& cuts,
                                Work& work) const {
  if (cuts.empty()) {
    out.text = stretch.text;
    return normalizer.apply(out, work.matcher);
  }
  out.text = with_marks(stretch.text, cuts);
  TROUPE_RETURN_IF_ERROR(normalizer.apply(out, work.matcher));
  CutText cut = without_marks(out.text);
  out.text = std::move(cut.text);
  cuts = std::move(cut.cuts);
  return {};
}

Status JsonTokenizer::encode_between(const Stretch& stretch, Work& work) const {
  std::string_view text = stretch.text;
  std::vector<size_t> cuts = stretch.cuts;
  NormalizedText normalized{{}, stretch.at_start, stretch.goes_on};
  if (!normalizer.is_identity()) {
    TROUPE_RETURN_IF_ERROR(normalize(stretch, normalized, cuts, work));
    text = normalized.text;
  }
  const std::vector<TextPart> parts = normalized_tokens->split(text, cuts);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].id >= 0) {
      work.ids->push_back(parts[i].id);
      continue;
    }
    const std::string_view part = parts[i].text;
    const bool is_first = part.data() == text.data();
    const bool begins = is_first && normalized.at_start;
    const bool goes_on = is_first && stretch.goes_on;
    // Parts of a closed stretch are cached with it already.
    const bool closed = !stretch.closed && i + 1 < parts.size();
    const TokenCache::Key key{kNormalizedStage, begins, part};
    TROUPE_RETURN_IF_ERROR(TokenCache::encode_once(
        goes_on ? nullptr : work.cache, key, closed, *work.ids,
        [&] { return encode_plain(TextPieces(part, begins, goes_on), stretch.closed || closed, work); }));
  }
  return {};
}

// Takes those up to the part's end out of `cuts`, and returns the ones within it, from its beginning on.
std::vector<size_t> take_cuts(std::span<const size_t>& cuts, std::string_view text, std::string_view part) {
  const auto begin = static_cast<size_t>(part.data() - text.data());
  std::vector<size_t> within;
  for (; !cuts.empty() && cuts.front() < begin + part.size(); cuts = cuts.subspan(1)) {
    if (cuts.front() > begin) within.push_back(cuts.front() - begin);
  }
  return within;
}

bool JsonTokenizer::ends_with_added(const std::vector<int32_t>& ids) const {
  return !ids.empty() && std::any_of(added.begin(), added.end(), [&](const AddedToken& token) {
    return token.id == ids.back() && !token.normalized;
  });
}

// Encodes what stands on one side of a boundary, `cuts` being its own.
Status JsonTokenizer::encode_side(std::string_view text, bool at_start, std::span<const size_t> all_cuts,
                                  Work& work) const {
  // An added token is a boundary itself: what follows is the same with and without another. (One that is
  // searched in normalised text divides nothing before that.)
  const bool side_goes_on = !at_start && !ends_with_added(*work.ids);
  const std::vector<TextPart> parts = raw_tokens->split(text, all_cuts);
  // Where no token is searched in normalised text, no cut matters there.
  std::span<const size_t> cuts = normalized_tokens->empty() ? std::span<const size_t>() : all_cuts;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].id >= 0) {
      work.ids->push_back(parts[i].id);
      continue;
    }
    const std::string_view part = parts[i].text;
    const bool is_first = part.data() == text.data();
    Stretch stretch{part, is_first && at_start, is_first && side_goes_on, i + 1 < parts.size(),
                    take_cuts(cuts, text, part)};
    // Nothing of it is cached where ids depend on more than the text.
    const bool has_cuts = !stretch.cuts.empty();
    stretch.closed |= has_cuts;
    TokenCache* const cache = has_cuts || stretch.goes_on ? nullptr : work.cache;
    const TokenCache::Key key{kRawStage, stretch.at_start, part};
    TROUPE_RETURN_IF_ERROR(TokenCache::encode_once(cache, key, stretch.closed, *work.ids,
                                                   [&] { return encode_between(stretch, work); }));
  }
  return {};
}

Status JsonTokenizer::encode(std::string_view text, const EncodeOptions& options,
                             std::vector<int32_t>& ids) const {
  Work work;
  work.ids = &ids;
  work.cache = options.cache;
  TROUPE_RETURN_IF_ERROR(count_work(text.size()));
  const TextSides sides = sides_of(text, options);
  TROUPE_RETURN_IF_ERROR(encode_side(sides.before, /*at_start=*/true, options.cuts, work));
  TROUPE_RETURN_IF_ERROR(encode_side(sides.behind, sides.before.empty(), sides.cuts_behind, work));
  if (options.add_special) ids = post_processor.apply(std::move(ids));
  return {};
}

std::unique_ptr<TokenStream> JsonTokenizer::stream(bool skip_special, bool at_start) const {
  return std::make_unique<JsonStream>(this, skip_special, at_start);
}

std::optional<int32_t> JsonTokenizer::token_to_id(std::string_view token) const {
  auto it = added_ids.find(to_absl(token));
  return it != added_ids.end() ? std::optional(it->second) : model->token_to_id(token);
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer::Impl>> load_json_tokenizer(const bj::value& root,
                                                               TokenizerConfig config) {
  TROUPE_ASSIGN_OR_RETURN(JsonItem item, json_object(root, ""));
  auto tokenizer = std::make_unique<JsonTokenizer>();
  TROUPE_RETURN_IF_ERROR(tokenizer->load(item, std::move(config)));
  return std::unique_ptr<Tokenizer::Impl>(std::move(tokenizer));
}

}  // namespace troupe
