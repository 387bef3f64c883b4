// A chunk is a token of one stream, so the work for each is small: the member is found from the chunk's end.
// It cannot be confused with part of the text there: the braces that close the chunk come after it, its
// name's quotes are bare, and in a string they would be escaped.

#include "gateway/upstream/resume_filter.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace troupe {
namespace {

constexpr std::string_view kHeartbeat = ": hb\n\n";
constexpr std::string_view kData = "data: ";
constexpr std::string_view kBlank = "\n\n";
constexpr std::string_view kMember = ",\"troupe\":";
// Greatest distance from a choice's finish reason to the end of its chunk.
constexpr size_t kFinishBytes = 64;

// Position of the member (of its comma) in a chunk's JSON; npos: none.
size_t member_of(std::string_view data) {
  const size_t brace = data.rfind('{');
  if (brace == std::string_view::npos || !data.substr(0, brace).ends_with(kMember))
    return std::string_view::npos;
  return brace - kMember.size();
}

bool skip(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

template <typename Number>
bool read_number(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

const bj::value* field(const bj::value& object, std::string_view name) {
  return object.is_object() ? object.get_object().if_contains(bj::string_view(name.data(), name.size()))
                            : nullptr;
}

std::string_view string_field(const bj::value& object, std::string_view name) {
  const bj::value* value = field(object, name);
  if (value == nullptr || !value->is_string()) return {};
  return {value->get_string().data(), value->get_string().size()};
}

}  // namespace

void ResumeTap::lose() {
  lost_ = true;
  std::vector<int32_t>().swap(ids_);
}

// Parses `,"prompt_tokens":…,"completion_tokens":…,"cached_tokens":…`, or nothing. False: malformed.
bool ResumeTap::read_counts(std::string_view& member, std::optional<route::AnswerCounts>& counts) {
  if (!skip(member, ",\"prompt_tokens\":")) return true;
  route::AnswerCounts sent;
  sent.has_cached = true;
  const bool read = read_number(member, sent.prompt_tokens) && skip(member, ",\"completion_tokens\":") &&
                    read_number(member, sent.completion_tokens) && skip(member, ",\"cached_tokens\":") &&
                    read_number(member, sent.cached_tokens);
  counts = sent;
  return read && sent.completion_tokens >= 0 && sent.completion_tokens <= INT32_MAX &&
         sent.prompt_tokens <= INT32_MAX && sent.cached_tokens >= 0 &&
         sent.cached_tokens <= sent.prompt_tokens;
}

// Parses `{"ids":[…]}`, with the seed, the counts or both behind the ids, and the chunk's own brace. Anything
// else: false, and nothing is kept.
bool ResumeTap::take_member(std::string_view member) {
  const size_t before = ids_.size();
  size_t count = 0;
  std::optional<uint64_t> seed;
  std::optional<route::AnswerCounts> counts;
  bool good = skip(member, "{\"ids\":[");
  for (bool more = good && !member.starts_with(']'); more; more = good && skip(member, ",")) {
    int32_t id = 0;
    good = read_number(member, id) && id >= 0;
    count += 1;
    if (good && !lost_) ids_.push_back(id);
  }
  good = good && skip(member, "]");
  if (good && skip(member, ",\"seed\":")) good = read_number(member, seed.emplace());
  good = good && read_counts(member, counts) && member == "}}";
  if (!good) ids_.resize(before);
  if (good) tokens_delivered_ += count;
  if (good && seed && !seed_) seed_ = seed;
  if (good && counts) counts_ = counts;
  if (ids_.size() > kIdsMax) lose();
  return good;
}

std::optional<ResumeTap::Identity> ResumeTap::identity_of(std::string_view data) {
  const auto chunk = parse_json(data);
  if (!chunk.ok()) return std::nullopt;
  const bj::value* created = field(*chunk, "created");
  Identity identity;
  identity.id = string_field(*chunk, "id");
  if (identity.id.empty() || created == nullptr || !created->is_int64()) return std::nullopt;
  identity.created_s = created->get_int64();
  return identity;
}

// `data`: a chunk without its member, or another event's. False: the client has it already, or must not get
// it.
bool ResumeTap::passes(std::string_view data, bool has_ids) {
  const bool first = std::exchange(first_, false);
  const auto identity = first && has_ids ? identity_of(data) : std::nullopt;
  if (first && resumes_) diverged_ = !identity || !identity_ || identity->id != identity_->id;
  if (diverged_) return false;
  if (first && !resumes_) identity_ = identity;
  if (data == "[DONE]") {
    done_ = true;
    return true;
  }
  if (!has_ids) {
    if (data.find("\"choices\":[],") == std::string_view::npos) lose();  // else the usage, which has no ids
    return true;
  }
  heartbeats_ = true;
  const bool had_finished = finished_;
  const std::string_view tail = data.substr(data.size() - std::min(data.size(), kFinishBytes));
  finished_ = finished_ || tail.find("\"finish_reason\":\"") != std::string_view::npos;
  if (!first || !had_finished) return true;
  counts_.reset();  // this worker has computed nothing, so its counts mean nothing
  return false;
}

void ResumeTap::cut(std::string& events) {
  size_t to = 0;
  const auto keep = [&](size_t begin, size_t end) {
    if (to != begin) std::memmove(events.data() + to, events.data() + begin, end - begin);
    to += end - begin;
  };
  for (size_t from = 0; from < events.size() && !diverged_;) {
    const std::string_view rest = std::string_view(events).substr(from);
    if (rest.starts_with(kHeartbeat)) {
      heartbeats_ = true;
      from += kHeartbeat.size();
      continue;
    }
    if (rest.starts_with('\n')) {
      keep(from, from + 1);
      from += 1;
      continue;
    }
    const size_t blank = rest.find(kBlank);
    const size_t end = blank == std::string_view::npos ? events.size() : from + blank + kBlank.size();
    const size_t begin = std::exchange(from, end);
    if (blank == std::string_view::npos || !rest.starts_with(kData)) {
      if (!rest.starts_with(':')) lose();
      keep(begin, end);
      continue;
    }
    const std::string_view data = rest.substr(kData.size(), blank - kData.size());
    if (data.starts_with("{\"error\"")) {
      keep(begin, end);
      continue;
    }
    const size_t at = member_of(data), ids_before = ids_.size(), tokens_before = tokens_delivered_;
    const bool has_ids = at != std::string_view::npos && take_member(data.substr(at + kMember.size()));
    if (!has_ids) {
      if (passes(data, false)) keep(begin, end);
      continue;
    }
    // The chunk's last brace and the blank line move up to the member's position.
    const size_t member = begin + kData.size() + at;
    const size_t tail = end - kBlank.size() - 1;
    events[member] = '}';
    if (!passes(std::string_view(events).substr(begin + kData.size(), at + 1), true)) {
      if (diverged_) {
        ids_.resize(std::min(ids_.size(), ids_before));
        tokens_delivered_ = tokens_before;
        counts_.reset();
      }
      continue;
    }
    keep(begin, member + 1);
    keep(tail + 1, end);
  }
  events.resize(to);
}

void ResumeTap::next_worker(bool resumes) {
  heartbeats_ = diverged_ = false;
  first_ = true;
  resumes_ = resumes;
  counts_.reset();
}

std::string ResumeTap::resume_body(std::string_view body) const {
  const size_t end = body.rfind('}');
  std::string out;
  out.reserve(body.size() + 8 * ids_.size() + 128);
  out = body.substr(0, end);
  out += ",\"troupe_resume\":{\"ids\":[";
  for (size_t i = 0; i < ids_.size(); ++i) absl::StrAppend(&out, i == 0 ? "" : ",", ids_[i]);
  absl::StrAppend(&out, "],\"seed\":", *seed_, ",\"id\":");
  append_json_string(out, identity_->id);
  absl::StrAppend(&out, ",\"created\":", identity_->created_s, "}");
  out += body.substr(end);
  return out;
}

int status_of_error_event(std::string_view event) {
  if (event.starts_with(kData)) event.remove_prefix(kData.size());
  const auto parsed = parse_json(event);
  const bj::value* error = parsed.ok() ? field(*parsed, "error") : nullptr;
  if (error == nullptr) return 0;
  const std::string_view type = string_field(*error, "type"), code = string_field(*error, "code");
  if (type == "rate_limit_error") return 429;
  if (type == "timeout_error") return 504;
  if (type == "server_error") return code == "unavailable" ? 503 : 500;
  if (type != "invalid_request_error") return 0;
  if (code == "model_not_found") return 404;
  return code == "request_too_large" ? 413 : 400;
}

}  // namespace troupe
