#define PCRE2_CODE_UNIT_WIDTH 8
#include "worker/text/tokenizer/regex.h"

#include <pcre2.h>

#include <new>

#include "absl/strings/str_cat.h"
#include "common/core/work_limit.h"

namespace troupe {
namespace {

constexpr size_t kPatternBytesMax = 64u << 10;
// Backtracking limit of one match; published patterns need a handful of steps a character.
constexpr uint32_t kMatchStepsMax = 10'000'000;
// Work of a match besides its text's.
constexpr size_t kMatchWork = 8;
constexpr size_t kJitStackStartBytes = 32u << 10;
constexpr size_t kJitStackMaxBytes = 8u << 20;

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

StatusOr<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) {
    return invalid_argument(absl::StrCat("regex of ", pattern.size(), " bytes: at most ", kPatternBytesMax));
  }
  TROUPE_ASSIGN_OR_RETURN(std::string translated, pcre2_pattern(pattern));
  int code = 0;
  size_t offset = 0;
  // DOTALL off and MULTILINE on is Ruby's meaning: '.' stops at a line, '^' and '$' know lines.
  pcre2_code* raw = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code,
                                  &offset, nullptr);
  if (raw == nullptr) {
    return invalid_argument(absl::StrCat("regex \"", to_absl(pattern), "\": ", error_text(code)));
  }
  Regex regex;
  regex.code_ = std::shared_ptr<const pcre2_code>(
      raw, [](const pcre2_code* p) { pcre2_code_free(const_cast<pcre2_code*>(p)); });
  // Without the JIT matching is slower and otherwise the same.
  pcre2_jit_compile(raw, PCRE2_JIT_COMPLETE);
  return regex;
}

Regex::Matcher::Matcher()
    : data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(kJitStackStartBytes, kJitStackMaxBytes, nullptr)) {
  if (data_ == nullptr || context_ == nullptr) throw std::bad_alloc();
  pcre2_set_match_limit(context_, kMatchStepsMax);
  if (stack_ != nullptr) pcre2_jit_stack_assign(context_, nullptr, stack_);
}

Regex::Matcher::~Matcher() {
  pcre2_jit_stack_free(stack_);
  pcre2_match_context_free(context_);
  pcre2_match_data_free(data_);
}

Status Regex::for_each_match(std::string_view text, Matcher& matcher,
                             const std::function<void(Span)>& found) const {
  const size_t* offsets = pcre2_get_ovector_pointer(matcher.data_);
  size_t from = 0;
  size_t previous_end = std::string_view::npos;  // an empty match directly after a match does not count
  while (from <= text.size()) {
    int rc = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                         PCRE2_NO_UTF_CHECK, matcher.data_, matcher.context_);
    if (rc == PCRE2_ERROR_NOMATCH) return {};
    if (rc < 0) return absl::ResourceExhaustedError(to_absl("regex match failed: " + error_text(rc)));
    Span span{offsets[0], offsets[1]};
    if (span.begin > span.end)
      return absl::InternalError("regex match ends before it begins (\\K is not supported)");
    TROUPE_RETURN_IF_ERROR(count_work(kMatchWork + span.end - from));
    bool empty = span.begin == span.end;
    if (!empty || span.begin != previous_end) found(span);
    previous_end = span.end;
    from = span.end;
    if (empty) {
      from += 1;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
    }
  }
  return {};
}

}  // namespace troupe
