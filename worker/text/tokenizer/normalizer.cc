// One class a component type; load_step is the table of types. To add a type, add a class and a row.

#include "worker/text/tokenizer/normalizer.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/core/work_limit.h"
#include "worker/text/json_fields.h"
#include "worker/text/tokenizer/byte_level.h"
#include "worker/text/tokenizer/pattern.h"
#include "worker/text/unicode.h"

namespace troupe {
namespace {

constexpr std::string_view kSupported =
    "ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence, Strip, StripAccents";
constexpr size_t kStepsMax = 32;
// Replace can lengthen a text at every match, and steps multiply: this is the limit.
constexpr size_t kTextBytesMax = size_t{256} << 20;

class Form final : public NormalizerStep {
 public:
  explicit Form(NormalForm form) : form_(form) {}
  Status apply(NormalizedText& text, Regex::Matcher&) const override {
    TROUPE_ASSIGN_OR_RETURN(text.text, normalize_utf8(text.text, form_));
    return {};
  }

 private:
  NormalForm form_;
};

class Lowercase final : public NormalizerStep {
 public:
  Status apply(NormalizedText& text, Regex::Matcher&) const override {
    std::string lower;
    for (size_t pos = 0; pos < text.text.size();) append_lowercase(lower, next_code_point(text.text, pos));
    text.text = std::move(lower);
    return {};
  }
};

class Strip final : public NormalizerStep {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  Status apply(NormalizedText& text, Regex::Matcher&) const override {
    size_t first_end = std::string::npos;  // end of the leading white space
    size_t last_end = 0;                   // end of the last other character
    for (size_t pos = 0; pos < text.text.size();) {
      size_t begin = pos;
      if (is_white_space(next_code_point(text.text, pos))) continue;
      if (first_end == std::string::npos) first_end = begin;
      last_end = pos;
    }
    bool blank = first_end == std::string::npos;
    if (right_) text.text.resize(blank ? 0 : last_end);
    if (!left_ || text.goes_on) return {};
    if (blank) {
      text.text.clear();
    } else if (first_end > 0) {
      text.text.erase(0, first_end);
      text.at_start = false;
    }
    return {};
  }

  static StatusOr<std::unique_ptr<NormalizerStep>> load(const JsonItem& item) {
    TROUPE_ASSIGN_OR_RETURN(bool left, bool_field(item, "strip_left", true));
    TROUPE_ASSIGN_OR_RETURN(bool right, bool_field(item, "strip_right", true));
    return std::make_unique<Strip>(left, right);
  }

 private:
  bool left_;
  bool right_;
};

class StripAccents final : public NormalizerStep {
 public:
  Status apply(NormalizedText& text, Regex::Matcher&) const override {
    std::string kept;
    for (size_t pos = 0; pos < text.text.size();) {
      size_t begin = pos;
      if (!is_mark(next_code_point(text.text, pos))) {
        kept.append(text.text, begin, pos - begin);
      } else if (begin == 0) {
        text.at_start = false;
      }
    }
    text.text = std::move(kept);
    return {};
  }
};

class Prepend final : public NormalizerStep {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}

  Status apply(NormalizedText& text, Regex::Matcher&) const override {
    if (!text.text.empty() && !text.goes_on) text.text.insert(0, prefix_);
    return {};
  }

  static StatusOr<std::unique_ptr<NormalizerStep>> load(const JsonItem& item) {
    TROUPE_ASSIGN_OR_RETURN(std::string prefix, string_field(item, "prepend"));
    return std::make_unique<Prepend>(std::move(prefix));
  }

 private:
  std::string prefix_;
};

class Replace final : public NormalizerStep {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  Status apply(NormalizedText& text, Regex::Matcher& matcher) const override {
    std::string replaced;
    size_t done = 0;
    TROUPE_RETURN_IF_ERROR(pattern_.for_each_match(text.text, matcher, [&](Span match) {
      replaced.append(text.text, done, match.begin - done);
      if (replaced.size() <= kTextBytesMax) replaced += content_;
      done = match.end;
      if (match.begin > 0 || match.end == 0) return;
      // The content replaces the match's last character; if nothing does, the following text is
      // now the beginning.
      std::string_view gone = std::string_view(text.text).substr(0, match.end);
      if (content_.empty() || count_code_points(gone) > 1) text.at_start = false;
    }));
    replaced.append(text.text, done);
    if (replaced.size() > kTextBytesMax)
      return absl::ResourceExhaustedError("the normalized text is too long");
    text.text = std::move(replaced);
    return {};
  }

  static StatusOr<std::unique_ptr<NormalizerStep>> load(const JsonItem& item) {
    TROUPE_ASSIGN_OR_RETURN(Pattern pattern, Pattern::load(item));
    TROUPE_ASSIGN_OR_RETURN(std::string content, string_field(item, "content"));
    return std::make_unique<Replace>(std::move(pattern), std::move(content));
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class Bytes final : public NormalizerStep {
 public:
  Status apply(NormalizedText& text, Regex::Matcher&) const override {
    std::string letters;
    append_byte_level(letters, text.text);
    text.text = std::move(letters);
    return {};
  }
};

StatusOr<std::unique_ptr<NormalizerStep>> load_step(const JsonItem& item, const std::string& type) {
  if (type == "NFC") return std::make_unique<Form>(NormalForm::kNfc);
  if (type == "NFD") return std::make_unique<Form>(NormalForm::kNfd);
  if (type == "NFKC") return std::make_unique<Form>(NormalForm::kNfkc);
  if (type == "NFKD") return std::make_unique<Form>(NormalForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "Strip") return Strip::load(item);
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Prepend") return Prepend::load(item);
  if (type == "Replace") return Replace::load(item);
  if (type == "ByteLevel") return std::make_unique<Bytes>();
  return unsupported_component(item, type, kSupported);
}

}  // namespace

Status Normalizer::collect(const bj::value& value, const std::string& where) {
  TROUPE_ASSIGN_OR_RETURN(JsonItem item, json_object(value, where));
  TROUPE_ASSIGN_OR_RETURN(std::string type, component_type(item));
  if (type == "Sequence") {
    TROUPE_ASSIGN_OR_RETURN(const bj::array* list, array_field(item, "normalizers"));
    // The JSON reader's depth limit bounds this recursion.
    for (size_t i = 0; i < list->size(); ++i) {
      TROUPE_RETURN_IF_ERROR(collect((*list)[i], absl::StrCat(where, ".normalizers[", i, "]")));
    }
    return {};
  }
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<NormalizerStep> step, load_step(item, type));
  steps_.push_back(std::move(step));
  if (steps_.size() <= kStepsMax) return {};
  return invalid_argument(absl::StrCat(where, ": more than ", kStepsMax, " normalizers"));
}

StatusOr<Normalizer> Normalizer::load(const bj::value& value, const std::string& where) {
  Normalizer normalizer;
  if (value.is_null()) return normalizer;
  TROUPE_RETURN_IF_ERROR(normalizer.collect(value, where));
  return normalizer;
}

Status Normalizer::apply(NormalizedText& text, Regex::Matcher& matcher) const {
  for (const auto& step : steps_) {
    TROUPE_RETURN_IF_ERROR(count_work(text.text.size()));
    TROUPE_RETURN_IF_ERROR(step->apply(text, matcher));
  }
  return {};
}

}  // namespace troupe
