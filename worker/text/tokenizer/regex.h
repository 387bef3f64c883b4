#pragma once

// Regular expressions of tokenizer.json: Oniguruma's dialect (Ruby syntax), matched by PCRE2 with JIT. If the
// two read a pattern differently, it is rewritten so that PCRE2 matches as Oniguruma does (\s, \w, \d and
// their opposites spelled out as classes), or refused by name. Immutable after compile; a Matcher is one
// thread's working memory.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/core/status.h"

// PCRE2's own forward declarations, so that its header (a macro a width) stays out of ours.
struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace troupe {

struct Span {
  size_t begin = 0;
  size_t end = 0;
};

class Regex {
 public:
  static StatusOr<Regex> compile(std::string_view pattern);

  // Calls found(span) for all matches from left to right, as find_iter does. REQUIRES: valid UTF-8. An error
  // if the pattern backtracks beyond a limit.
  class Matcher;
  Status for_each_match(std::string_view text, Matcher& matcher,
                        const std::function<void(Span)>& found) const;

 private:
  std::shared_ptr<const pcre2_real_code_8> code_;
};

// Match data, limits and the JIT's stack, kept over the many short calls of one encode.
class Regex::Matcher {
 public:
  Matcher();
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

 private:
  friend class Regex;
  pcre2_real_match_data_8* data_;
  pcre2_real_match_context_8* context_;
  pcre2_real_jit_stack_8* stack_;
};

// Only rewrites the pattern, for tests.
StatusOr<std::string> pcre2_pattern(std::string_view oniguruma_pattern);

}  // namespace troupe
