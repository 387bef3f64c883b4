// One class a component type; load_pre_tokenizer is the table of types. To add a type, add a class and a row.

#include "worker/text/tokenizer/pre_tokenizer.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "absl/strings/str_cat.h"
#include "worker/text/json_fields.h"
#include "worker/text/tokenizer/byte_level.h"
#include "worker/text/tokenizer/metaspace.h"
#include "worker/text/tokenizer/pattern.h"
#include "worker/text/tokenizer/split.h"
#include "worker/text/unicode.h"

namespace troupe {
namespace {

constexpr std::string_view kSupported =
    "ByteLevel, Digits, Metaspace, Punctuation, Sequence, Split, Whitespace, WhitespaceSplit";
constexpr int kSequenceDepthMax = 8;

// GPT-2's pattern, which ByteLevel applies if use_regex is set.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Replaces every piece by the parts of it that `cut` names.
template <typename Cut>
Status cut_pieces(TextPieces& pieces, const Cut& cut) {
  TextPieces out;
  for (size_t i = 0; i < pieces.count(); ++i) {
    std::string_view piece = pieces[i];
    TROUPE_ASSIGN_OR_RETURN(std::vector<Span> spans, cut(piece));
    for (Span span : spans) {
      if (i == 0 && out.count() == 0 && span.begin == 0) out.set_begin(pieces);
      out.add(piece.substr(span.begin, span.end - span.begin));
    }
  }
  pieces = std::move(out);
  return {};
}

// Cuts a piece by `behavior` at the characters for which `is_match` holds, one match each.
template <typename IsMatch>
Status cut_at_characters(TextPieces& pieces, SplitBehavior behavior, const IsMatch& is_match) {
  return cut_pieces(pieces, [&](std::string_view piece) -> StatusOr<std::vector<Span>> {
    std::vector<Span> matches;
    for (size_t pos = 0; pos < piece.size();) {
      size_t begin = pos;
      if (is_match(next_code_point(piece, pos))) matches.push_back({begin, pos});
    }
    return split_spans(cover(matches, piece.size()), behavior);
  });
}

StatusOr<SplitBehavior> behavior_field(const JsonItem& item) {
  TROUPE_ASSIGN_OR_RETURN(std::string name, string_field(item, "behavior"));
  std::optional<SplitBehavior> behavior = split_behavior(name);
  if (behavior.has_value()) return *behavior;
  return invalid_argument(
      absl::StrCat(field_path(item, "behavior"), ": unknown behavior \"", name,
                   "\" (Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous)"));
}

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, std::optional<Regex> regex)
      : add_prefix_space_(add_prefix_space), regex_(std::move(regex)) {}

  Status apply(TextPieces& pieces, Regex::Matcher& matcher) const override {
    TextPieces out;
    out.set_begin(pieces);
    std::string letters;
    auto add = [&](std::string_view piece) {
      letters.clear();
      append_byte_level(letters, piece);
      out.add(letters);
    };
    std::string prefixed;
    for (size_t i = 0; i < pieces.count(); ++i) {
      std::string_view piece = pieces[i];
      if (add_prefix_space_ && piece.front() != ' ' && !(i == 0 && pieces.goes_on())) {
        prefixed = absl::StrCat(" ", to_absl(piece));
        piece = prefixed;
      }
      if (!regex_.has_value()) {
        add(piece);
        continue;
      }
      size_t done = 0;
      TROUPE_RETURN_IF_ERROR(regex_->for_each_match(piece, matcher, [&](Span match) {
        add(piece.substr(done, match.begin - done));
        add(piece.substr(match.begin, match.end - match.begin));
        done = match.end;
      }));
      add(piece.substr(done));
    }
    pieces = std::move(out);
    return {};
  }

  static StatusOr<std::unique_ptr<PreTokenizer>> load(const JsonItem& item) {
    TROUPE_ASSIGN_OR_RETURN(bool add_prefix_space, bool_field(item, "add_prefix_space", true));
    TROUPE_ASSIGN_OR_RETURN(bool use_regex, bool_field(item, "use_regex", true));
    std::optional<Regex> regex;
    if (use_regex) {
      TROUPE_ASSIGN_OR_RETURN(regex, Regex::compile(kGpt2Pattern));
    }
    return std::make_unique<ByteLevel>(add_prefix_space, std::move(regex));
  }

 private:
  bool add_prefix_space_;
  std::optional<Regex> regex_;
};

class Split final : public PreTokenizer {
 public:
  Split(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  Status apply(TextPieces& pieces, Regex::Matcher& matcher) const override {
    std::vector<Span> matches;
    return cut_pieces(pieces, [&](std::string_view piece) -> StatusOr<std::vector<Span>> {
      matches.clear();
      TROUPE_RETURN_IF_ERROR(
          pattern_.for_each_match(piece, matcher, [&](Span match) { matches.push_back(match); }));
      std::vector<Stretch> stretches = cover(matches, piece.size());
      if (invert_) {
        for (Stretch& stretch : stretches) stretch.is_match = !stretch.is_match;
      }
      return split_spans(stretches, behavior_);
    });
  }

  static StatusOr<std::unique_ptr<PreTokenizer>> load(const JsonItem& item) {
    TROUPE_ASSIGN_OR_RETURN(SplitBehavior behavior, behavior_field(item));
    TROUPE_ASSIGN_OR_RETURN(bool invert, bool_field(item, "invert", false));
    TROUPE_ASSIGN_OR_RETURN(Pattern pattern, Pattern::load(item));
    return std::make_unique<Split>(std::move(pattern), behavior, invert);
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class Digits final : public PreTokenizer {
 public:
  explicit Digits(bool individual)
      : behavior_(individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous) {}

  Status apply(TextPieces& pieces, Regex::Matcher&) const override {
    return cut_at_characters(pieces, behavior_, is_numeric);
  }

  static StatusOr<std::unique_ptr<PreTokenizer>> load(const JsonItem& item) {
    TROUPE_ASSIGN_OR_RETURN(bool individual, bool_field(item, "individual_digits", false));
    return std::make_unique<Digits>(individual);
  }

 private:
  SplitBehavior behavior_;
};

class Punctuation final : public PreTokenizer {
 public:
  explicit Punctuation(SplitBehavior behavior) : behavior_(behavior) {}

  Status apply(TextPieces& pieces, Regex::Matcher&) const override {
    return cut_at_characters(pieces, behavior_, is_punctuation);
  }

  static StatusOr<std::unique_ptr<PreTokenizer>> load(const JsonItem& item) {
    if (find_field(item, "behavior") == nullptr) {
      return std::make_unique<Punctuation>(SplitBehavior::kIsolated);
    }
    TROUPE_ASSIGN_OR_RETURN(SplitBehavior behavior, behavior_field(item));
    return std::make_unique<Punctuation>(behavior);
  }

 private:
  SplitBehavior behavior_;
};

class WhitespaceSplit final : public PreTokenizer {
 public:
  Status apply(TextPieces& pieces, Regex::Matcher&) const override {
    return cut_at_characters(pieces, SplitBehavior::kRemoved, is_white_space);
  }
};

// Matches \w+|[^\w\s]+: runs of word characters and runs of signs; drops white space.
class Whitespace final : public PreTokenizer {
 public:
  Status apply(TextPieces& pieces, Regex::Matcher&) const override {
    return cut_pieces(pieces, [](std::string_view piece) -> StatusOr<std::vector<Span>> {
      enum class Kind : uint8_t { kSpace, kWord, kSign };
      std::vector<Span> runs;
      Kind previous = Kind::kSpace;
      for (size_t pos = 0; pos < piece.size();) {
        size_t begin = pos;
        char32_t c = next_code_point(piece, pos);
        Kind kind = is_white_space(c) ? Kind::kSpace : is_word_char(c) ? Kind::kWord : Kind::kSign;
        if (kind != Kind::kSpace && kind == previous) {
          runs.back().end = pos;
        } else if (kind != Kind::kSpace) {
          runs.push_back({begin, pos});
        }
        previous = kind;
      }
      return runs;
    });
  }
};

// SentencePiece's scheme: a space is the letter "▁" that begins the following word.
class Metaspace final : public PreTokenizer {
 public:
  enum class Prepend : uint8_t { kAlways, kFirst, kNever };
  Metaspace(std::string replacement, Prepend prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}

  Status apply(TextPieces& pieces, Regex::Matcher&) const override {
    TextPieces out;
    out.set_begin(pieces);
    std::string text;
    for (size_t i = 0; i < pieces.count(); ++i) {
      const bool first = i == 0;
      rewrite(pieces[i], wants_prefix(first && pieces.at_start(), first && pieces.goes_on()), text);
      size_t begin = 0;
      while (split_ && begin < text.size()) {
        size_t end = text.find(replacement_, begin + 1);
        if (end == std::string::npos) break;
        out.add(std::string_view(text).substr(begin, end - begin));
        begin = end;
      }
      out.add(std::string_view(text).substr(begin));
    }
    pieces = std::move(out);
    return {};
  }

  static StatusOr<std::unique_ptr<PreTokenizer>> load(const JsonItem& item) {
    TROUPE_ASSIGN_OR_RETURN(std::string replacement, metaspace_replacement(item));
    TROUPE_ASSIGN_OR_RETURN(std::string scheme, metaspace_scheme(item));
    TROUPE_ASSIGN_OR_RETURN(bool split, bool_field(item, "split", true));
    Prepend prepend = scheme == "always"  ? Prepend::kAlways
                      : scheme == "first" ? Prepend::kFirst
                                          : Prepend::kNever;
    return std::make_unique<Metaspace>(std::move(replacement), prepend, split);
  }

 private:
  bool wants_prefix(bool at_start, bool goes_on) const {
    if (goes_on) return false;
    return prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && at_start);
  }

  void rewrite(std::string_view piece, bool wants_prefix, std::string& text) const {
    text.clear();
    bool has_prefix = piece.front() == ' ' || piece.substr(0, replacement_.size()) == replacement_;
    if (wants_prefix && !has_prefix) text = replacement_;
    for (char c : piece) {
      if (c == ' ') {
        text += replacement_;
      } else {
        text.push_back(c);
      }
    }
  }

  std::string replacement_;
  Prepend prepend_;
  bool split_;
};

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> stages) : stages_(std::move(stages)) {}

  Status apply(TextPieces& pieces, Regex::Matcher& matcher) const override {
    for (const auto& stage : stages_) TROUPE_RETURN_IF_ERROR(stage->apply(pieces, matcher));
    return {};
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> stages_;
};

StatusOr<std::unique_ptr<PreTokenizer>> load_nested(const bj::value& value, const std::string& where,
                                                    int depth) {
  if (value.is_null()) return std::make_unique<Sequence>(std::vector<std::unique_ptr<PreTokenizer>>());
  TROUPE_ASSIGN_OR_RETURN(JsonItem item, json_object(value, where));
  TROUPE_ASSIGN_OR_RETURN(std::string type, component_type(item));
  if (type == "ByteLevel") return ByteLevel::load(item);
  if (type == "Split") return Split::load(item);
  if (type == "Digits") return Digits::load(item);
  if (type == "Metaspace") return Metaspace::load(item);
  if (type == "Punctuation") return Punctuation::load(item);
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit") return std::make_unique<WhitespaceSplit>();
  if (type != "Sequence") return unsupported_component(item, type, kSupported);
  if (depth >= kSequenceDepthMax) return invalid_argument(where + ": sequences nested too deeply");
  TROUPE_ASSIGN_OR_RETURN(const bj::array* list, array_field(item, "pretokenizers"));
  std::vector<std::unique_ptr<PreTokenizer>> stages;
  for (size_t i = 0; i < list->size(); ++i) {
    std::string path = absl::StrCat(where, ".pretokenizers[", i, "]");
    TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<PreTokenizer> stage, load_nested((*list)[i], path, depth + 1));
    stages.push_back(std::move(stage));
  }
  return std::make_unique<Sequence>(std::move(stages));
}

}  // namespace

StatusOr<std::unique_ptr<PreTokenizer>> load_pre_tokenizer(const bj::value& value, const std::string& where) {
  return load_nested(value, where, 0);
}

}  // namespace troupe
