#include "gateway/upstream/usage.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "common/api/api.h"
#include "gateway/upstream/sse_lines.h"

namespace troupe {
namespace {

// The object at the beginning of `text`, braces matched outside strings; empty when it does not end.
std::string_view object_at(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return text.substr(0, i + 1);
    }
  }
  return {};
}

constexpr std::string_view kName = "\"usage\"";  // in a model's string the quotes would be escaped
constexpr size_t kObjectBytesMax = 2048;
constexpr int kObjectsMax = 16;  // that are looked at in one piece

// Events that come before the answer, whose counts are not its own.
constexpr std::string_view kOpenings[] = {"\"message_start\"", "\"response.created\"", "\"response.queued\"",
                                          "\"response.in_progress\""};

// Position after the last `"usage"`; npos: none. Searched from the end, by its rarest letter.
size_t after_last_usage(std::string_view text) {
  constexpr size_t kRarest = kName.find('g');
  for (size_t left = text.size(); left > 0;) {
    const void* found = memrchr(text.data(), kName[kRarest], left);
    if (found == nullptr) break;
    left = static_cast<size_t>(static_cast<const char*>(found) - text.data());
    if (left >= kRarest && text.substr(left - kRarest).starts_with(kName))
      return left - kRarest + kName.size();
  }
  return std::string_view::npos;
}

// The usage whose name ends at `at`; nullopt: there is none, or it is malformed.
std::optional<ReportedUsage> usage_after(std::string_view text, size_t at) {
  at = text.find_first_not_of(" \t\r\n", at);
  if (at == std::string_view::npos || text[at] != ':') return std::nullopt;
  at = text.find_first_not_of(" \t\r\n", at + 1);
  if (at == std::string_view::npos || text[at] != '{') return std::nullopt;
  return parse_usage(object_at(text.substr(at, kObjectBytesMax)));
}

route::AnswerCounts counts_in(const ReportedUsage& usage) {
  route::AnswerCounts counts;
  counts.prompt_tokens = usage.prompt_tokens;
  counts.completion_tokens = usage.completion_tokens;
  counts.reasoning_tokens = usage.reasoning_tokens;
  counts.has_cached = usage.cached_tokens.has_value();
  counts.cached_tokens = usage.cached_tokens.value_or(0);
  return counts;
}

// The last usage in it that is a valid one.
std::optional<ReportedUsage> last_usage(std::string_view text) {
  std::string_view before = text;
  for (int i = 0; i < kObjectsMax; ++i) {
    const size_t at = after_last_usage(before);
    if (at == std::string_view::npos) break;
    if (const auto usage = usage_after(text, at)) return usage;
    before = before.substr(0, at - kName.size());
  }
  return std::nullopt;
}

bool is_opening(std::string_view event) {
  return std::any_of(std::begin(kOpenings), std::end(kOpenings), [event](std::string_view opening) {
    return event.find(opening) != std::string_view::npos;
  });
}

// Counts lines that begin with `data:`. An event's JSON has no line breaks: the search stops thrice a chunk.
size_t data_lines(std::string_view bytes) {
  size_t count = bytes.starts_with("data:") ? 1 : 0;
  for (size_t at = 0; (at = bytes.find('\n', at)) != std::string_view::npos;)
    count += bytes.substr(++at).starts_with("data:") ? 1 : 0;
  return count;
}

}  // namespace

void UsageTap::read_usages(std::string_view events) {
  if (events.find(kName) == std::string_view::npos) return;
  for_each_event(events, [this](std::string_view event) {
    const auto usage = last_usage(event);
    if (!usage) return false;
    if (is_opening(event)) {
      begun_ = counts_in(*usage);
    } else {
      const bool has_prompt = !usage->answer_only && (usage->prompt_tokens > 0 || !begun_);
      answer_ = has_prompt ? counts_in(*usage) : begun_;
      if (answer_) answer_->completion_tokens = usage->completion_tokens;
    }
    return false;
  });
}

void UsageTap::feed(std::string_view bytes) {
  bytes_ += bytes.size();
  events_ += data_lines(bytes);
  if (reads_every_) return read_usages(bytes);
  if (bytes.size() >= kTailBytes) {
    tail_.assign(bytes.substr(bytes.size() - kTailBytes));
    return;
  }
  // Trimmed only at twice the size, so that small pieces do not move it every time.
  if (tail_.size() + bytes.size() > 2 * kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
  tail_.append(bytes);
}

std::string_view UsageTap::finish_reason() const {
  constexpr size_t kReasonBytesMax = 64;
  for (const std::string_view name : {R"("finish_reason")", R"("stop_reason")"}) {
    // (The last choice's; null while it goes on.)
    for (size_t at = tail_.rfind(name); at != std::string::npos; at = tail_.rfind(name, at - 1)) {
      const size_t value = tail_.find_first_not_of(" \t\r\n:", at + name.size());
      if (value != std::string::npos && tail_[value] == '"') {
        const std::string_view reason =
            std::string_view(tail_).substr(value + 1, tail_.find('"', value + 1) - value - 1);
        if (reason.size() <= kReasonBytesMax && reason.find('\\') == std::string_view::npos) return reason;
      }
      if (at == 0) break;
    }
  }
  return {};
}

std::optional<route::AnswerCounts> UsageTap::counts() const {
  if (reads_every_) return answer_;
  // The same bytes count, whether they came in one piece or many.
  const std::string_view tail =
      std::string_view(tail_).substr(tail_.size() - std::min(tail_.size(), kTailBytes));
  const size_t at = after_last_usage(tail);
  if (at == std::string_view::npos) return std::nullopt;
  const auto usage = usage_after(tail, at);
  if (!usage || usage->answer_only) return std::nullopt;
  return counts_in(*usage);
}

}  // namespace troupe
