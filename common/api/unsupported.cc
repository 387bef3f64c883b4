// Fields of OpenAI's API (and vLLM's additions to it) that would change an answer's meaning and that Troupe
// does not support. Ignoring one would answer a different question, so each is refused, unless it has the
// neutral value that clients like to send. To support a field, move its row to parse.cc.

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/api/read.h"

namespace troupe {

namespace {

using Kind = GenerateRequest::Kind;

constexpr uint8_t kChat = 1, kCompletion = 2, kBoth = kChat | kCompletion;

bool never(dom::element) {
  return false;
}
bool is_false(dom::element value) {
  return value.is_bool() && !value.get_bool().value_unsafe();
}
bool is_true(dom::element value) {
  return value.is_bool() && value.get_bool().value_unsafe();
}
bool is_integer_one(dom::element value) {
  return integer_of(value) == 1;
}
// The off-values of front ends: 1, 0 or less, false, an empty text.
bool is_at_most(dom::element value, double most) {
  double number = 0;
  if (!value.get_double().get(number)) return number <= most;  // covers integers, too
  return is_false(value) || (value.is_string() && value.get_string().value_unsafe().empty());
}
// A factor of 1 changes nothing, and 0 is none.
bool is_one_or_none(dom::element value) {
  double number = 1;
  return is_at_most(value, 0) || (!value.get_double().get(number) && number == 1);
}
bool is_not_positive(dom::element value) {
  return is_at_most(value, 0);
}
bool is_empty(dom::element value) {
  if (value.is_object()) return value.get_object().value_unsafe().size() == 0;
  if (value.is_array()) return value.get_array().value_unsafe().size() == 0;
  return value.is_string() && value.get_string().value_unsafe().empty();
}
bool is_string_equal(dom::element value, std::string_view want) {
  return value.is_string() && value.get_string().value_unsafe() == want;
}
bool is_none_or_auto(dom::element value) {
  return is_string_equal(value, "none") || is_string_equal(value, "auto");
}
bool is_text_modality(dom::element value) {
  if (!value.is_array()) return false;
  const dom::array items = value.get_array().value_unsafe();
  dom::element only;
  return items.size() == 1 && !items.at(0).get(only) && is_string_equal(only, "text");
}

struct Row {
  std::string_view name;
  uint8_t kinds;
  bool (*is_neutral)(dom::element);
  std::string_view allowed;  // accepted values, for the message
};

// Sorted by name; a name may have a row for each kind.
constexpr Row kRows[] = {
    {"adaptive_target", kBoth, is_not_positive, "0 or less"},
    {"add_bos_token", kBoth, is_true, "true"},
    {"add_special_tokens", kChat, is_false, "false"},
    {"add_special_tokens", kCompletion, is_true, "true"},
    {"allowed_token_ids", kBoth, is_empty, "an empty list"},
    {"allowed_tokens", kBoth, is_empty, "an empty list"},
    {"audio", kChat, never, "null"},
    {"best_of", kChat, is_integer_one, "1"},
    {"chat_template", kChat, never, "null"},
    {"do_sample", kBoth, is_true, "true (for greedy answers set temperature to 0)"},
    {"echo", kChat, is_false, "false"},
    {"encoder_repetition_penalty", kBoth, is_one_or_none, "1"},
    {"function_call", kChat, is_none_or_auto, "\"none\" or \"auto\""},
    {"functions", kChat, is_empty, "an empty list (use 'tools')"},
    {"include_stop_str_in_output", kBoth, is_false, "false"},
    {"modalities", kChat, is_text_modality, "[\"text\"]"},
    {"no_repeat_ngram_size", kBoth, is_not_positive, "0"},
    {"nsigma", kBoth, is_not_positive, "0"},
    {"num_beams", kBoth, is_one_or_none, "1"},
    {"penalty_alpha", kBoth, is_not_positive, "0"},
    {"prompt_embeds", kBoth, never, "null"},
    {"prompt_logprobs", kBoth, never, "null"},
    {"return_token_ids", kBoth, is_false, "false"},
    {"skew", kBoth, is_not_positive, "0"},
    {"skip_special_tokens", kBoth, is_true, "true"},
    {"suffix", kCompletion, is_empty, "an empty string or null"},
    {"thinking_token_budget", kCompletion, never, "null"},
    {"token_healing", kBoth, is_false, "false"},
    {"top_n_sigma", kBoth, is_not_positive, "0"},
    {"truncate_prompt_tokens", kBoth, never, "null"},
    {"use_beam_search", kBoth, is_false, "false"},
    {"web_search_options", kChat, never, "null"},
};
static_assert(std::is_sorted(std::begin(kRows), std::end(kRows),
                             [](const Row& a, const Row& b) { return a.name < b.name; }));

}  // namespace

Fault check_unsupported(Kind kind, std::string_view name, dom::element value) {
  const uint8_t asked = kind == Kind::kChat ? kChat : kCompletion;
  const Row* row = std::lower_bound(std::begin(kRows), std::end(kRows), name,
                                    [](const Row& r, std::string_view n) { return r.name < n; });
  while (row != std::end(kRows) && row->name == name && (row->kinds & asked) == 0) ++row;
  if (row == std::end(kRows) || row->name != name || row->is_neutral(value)) return std::nullopt;
  return ApiError::unsupported(
      name, absl::StrCat("'", to_absl(name), "' is not supported here; leave it out or set it to ",
                         to_absl(row->allowed), "."));
}

}  // namespace troupe
