#include "common/api/read_thinking.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace troupe {

namespace {

constexpr size_t kEffortBytesMax = 1024;

// -1 is no bound, as in vLLM.
Fault read_budget(std::string_view param, dom::element value, std::optional<int32_t>& out) {
  int64_t count = 0;
  if (auto fault = read_integer(param, value, {.min = -1}, count)) return fault;
  out.reset();
  if (count >= 0) out = static_cast<int32_t>(std::min<int64_t>(count, std::numeric_limits<int32_t>::max()));
  return std::nullopt;
}

}  // namespace

bool GivenThinking::knows(std::string_view name) {
  return name == "thinking_token_budget" || name == "reasoning" || name == "reasoning_effort" ||
         name == "include_reasoning";
}

Fault GivenThinking::take(std::string_view name, dom::element value, GenerateRequest& request) {
  if (name == "thinking_token_budget") {
    has_own_budget_ = true;
    return read_budget(name, value, request.thinking_token_budget);
  }
  if (name == "reasoning_effort") return read_string(name, value, kEffortBytesMax, request.reasoning_effort);
  if (name == "include_reasoning") return read_bool(name, value, request.include_reasoning);
  if (!value.is_object()) return expected(name, "an object with 'max_tokens' or 'effort'", value);
  const dom::object members = value.get_object().value_unsafe();
  for (const auto member : members) {
    if (member.value.is_null()) continue;
    if (auto fault = take_member(member.key, member.value)) return fault;
  }
  return std::nullopt;
}

Fault GivenThinking::take_member(std::string_view name, dom::element value) {
  const std::string param = absl::StrCat("reasoning.", to_absl(name));
  if (name == "max_tokens") return read_budget(param, value, token_count_max_);
  if (name == "effort") return read_string(param, value, kEffortBytesMax, effort_);
  if (name == "enabled") return read_bool(param, value, is_enabled_);
  if (name == "exclude") return read_bool(param, value, is_excluded_);
  return std::nullopt;
}

void GivenThinking::settle(GenerateRequest& request) const {
  if (!has_own_budget_) request.thinking_token_budget = token_count_max_;
  if (request.reasoning_effort.empty()) request.reasoning_effort = is_enabled_ ? effort_ : "none";
  if (is_excluded_) request.include_reasoning = false;
}

}  // namespace troupe
