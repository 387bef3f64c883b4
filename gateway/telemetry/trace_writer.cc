#include "gateway/telemetry/trace_writer.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"

namespace troupe {

namespace {

constexpr size_t kPlacesMax = 1 << 18;
constexpr double kAnswerStep = 0.05;
constexpr uint64_t kIdBits = 53;  // every JSON reader keeps such a number exactly

enum IdKind : uint64_t { kText = 1, kAnswer };

// Id of the block that ends `tokens` after the beginning of the prompt (text) or of the answer (answer).
uint64_t block_id(uint64_t hash, IdKind kind, int64_t tokens) {
  return mix_hash(Hash128{hash, kind}, Hash128{kind, static_cast<uint64_t>(tokens)}) >> (64 - kIdBits);
}

template <typename Number>
void append_numbers(std::string& out, const char* name, const std::vector<Number>& ids) {
  absl::StrAppend(&out, ",\"", name, "\":[");
  for (size_t i = 0; i < ids.size(); ++i) absl::StrAppend(&out, i > 0 ? "," : "", ids[i]);
  out += ']';
}

// Appends what a reader needs to recognise messages that another gateway has recorded too.
void append_messages(std::string& out, const PromptFingerprint& marks, const std::vector<int64_t>& ends) {
  std::vector<uint64_t> ids;
  std::vector<size_t> answers;
  for (const PromptFingerprint::Part& part : marks.parts) {
    if (part.answer) answers.push_back(ids.size());
    ids.push_back(part.end.lo >> (64 - kIdBits));
  }
  append_numbers(out, "message_ends", ends);
  append_numbers(out, "message_ids", ids);
  append_numbers(out, "message_answers", answers);
}

void append_text(std::string& out, const char* name, const std::string& text) {
  absl::StrAppend(&out, ",\"", name, "\":");
  append_json_string(out, text);
}

// Prints microseconds as milliseconds, exactly.
void append_ms(std::string& out, const char* before, int64_t us) {
  char digits[40];
  const int length = std::snprintf(digits, sizeof digits, "%lld.%03lld", static_cast<long long>(us / 1000),
                                   static_cast<long long>(us % 1000));
  out += before;
  out.append(digits, static_cast<size_t>(length));
}

void append_outcome(std::string& out, const TrafficOutcome& outcome) {
  if (!outcome.node.empty()) {
    append_text(out, "node", outcome.node);
    append_text(out, "branch", outcome.branch);
    absl::StrAppend(&out, ",\"attempts\":", outcome.attempts, ",\"expected\":", outcome.expected);
  }
  if (outcome.counts && outcome.counts->has_cached)
    absl::StrAppend(&out, ",\"cached\":", outcome.counts->cached_tokens);
  absl::StrAppend(&out, ",\"status\":", outcome.status);
  if (outcome.first_byte_us) append_ms(out, ",\"ttft_ms\":", *outcome.first_byte_us);
  append_ms(out, ",\"duration_ms\":", outcome.duration_us);
}

}  // namespace

// The end of each part of a prompt, in tokens.
struct TraceWriter::Spans {
  std::vector<int64_t> ends;
  std::vector<bool> answers;  // the part was the answer to all before it

  std::vector<uint64_t> ids(const PromptFingerprint& marks) const;
  int64_t tokens_of(const PromptFingerprint& marks, size_t bytes) const;
};

std::vector<uint64_t> TraceWriter::Spans::ids(const PromptFingerprint& marks) const {
  std::vector<uint64_t> out;
  out.reserve(static_cast<size_t>(ends.back() / route::kBlockTokens));
  size_t part = 0, grains_before = 0;
  for (int64_t at = route::kBlockTokens; at <= ends.back(); at += route::kBlockTokens) {
    for (; ends[part] < at; ++part) grains_before += marks.parts[part].grains;
    const PromptFingerprint::Part& p = marks.parts[part];
    const int64_t begin = part > 0 ? ends[part - 1] : 0;
    const uint64_t before = part > 0 ? marks.parts[part - 1].end.lo : 0;
    if (answers[part]) {
      out.push_back(block_id(before, kAnswer, at - begin));
      continue;
    }
    const auto bytes = p.bytes * static_cast<size_t>(at - begin) / static_cast<size_t>(ends[part] - begin);
    const size_t grains = std::min(bytes / kGrainBytes, p.grains);
    const uint64_t hash = at == ends[part] ? p.end.lo
                          : grains > 0     ? marks.grains[grains_before + grains - 1]
                                           : before;
    out.push_back(block_id(hash, kText, at));
  }
  return out;
}

int64_t TraceWriter::Spans::tokens_of(const PromptFingerprint& marks, size_t bytes) const {
  int64_t begin = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    const size_t length = marks.parts[i].bytes;
    if (bytes < length) {
      return begin + static_cast<int64_t>(static_cast<size_t>(ends[i] - begin) * bytes / length);
    }
    bytes -= length;
    begin = ends[i];
  }
  return begin;
}

TraceWriter::TraceWriter(size_t held_bytes_max, std::string salt_name)
    : held_bytes_max_(held_bytes_max), salt_name_(std::move(salt_name)), places_(kPlacesMax) {}

void TraceWriter::arrived(TrafficArrival arrival) {
  const uint64_t number = arrival.number;
  Held& held = held_[number];
  held.arrival = std::move(arrival);
  held_bytes_ += held.bytes();
}

void TraceWriter::ended(uint64_t number, TrafficOutcome outcome) {
  const auto it = held_.find(number);
  if (it != held_.end()) it->second.outcome = std::move(outcome);
}

void TraceWriter::take(std::string& out) {
  while (!held_.empty()) {
    const Held& first = held_.begin()->second;
    if (!first.outcome && held_bytes_ <= held_bytes_max_) return;
    write(out, first);
    held_bytes_ -= first.bytes();
    held_.erase(held_.begin());
  }
}

void TraceWriter::take_all(std::string& out) {
  for (const auto& [number, held] : held_) write(out, held);
  held_.clear();
  held_bytes_ = 0;
}

// Known lengths stay; the text between two of them is divided by bytes.
TraceWriter::Spans TraceWriter::place(const TrafficArrival& arrival, int64_t prompt_tokens) {
  const auto& parts = arrival.marks.parts;
  Spans spans;
  spans.ends.assign(parts.size(), -1);
  spans.answers.assign(parts.size(), false);
  const Place* before = nullptr;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Place* known = places_.find(parts[i].end);
    spans.answers[i] = parts[i].answer && before != nullptr && before->asked;
    if (known != nullptr) {
      spans.ends[i] = known->tokens;
    } else if (spans.answers[i]) {
      spans.ends[i] = before->tokens + before->answer_tokens;
    }
    before = known;
  }
  spans.ends.back() = prompt_tokens;
  int64_t begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (spans.ends[i] < 0) {
      size_t next = i, bytes = 0;
      for (; spans.ends[next] < 0; ++next) bytes += parts[next].bytes;
      bytes += parts[next].bytes;
      const int64_t room = std::max<int64_t>(spans.ends[next] - begin, 0);
      spans.ends[i] =
          begin + (bytes > 0 ? room * static_cast<int64_t>(parts[i].bytes) / static_cast<int64_t>(bytes) : 0);
    }
    spans.ends[i] = std::clamp(spans.ends[i], begin, prompt_tokens);
    begin = spans.ends[i];
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    Place& its = places_.touch(parts[i].end);
    if (its.tokens == 0 || i + 1 == parts.size()) its.tokens = spans.ends[i];
  }
  return spans;
}

void TraceWriter::write(std::string& out, const Held& held) {
  const TrafficArrival& arrival = held.arrival;
  const PromptFingerprint& marks = arrival.marks;
  const TrafficOutcome none;
  const TrafficOutcome& outcome = held.outcome ? *held.outcome : none;
  const auto& counts = outcome.counts;
  size_t bytes = 0;
  for (const PromptFingerprint::Part& part : marks.parts) bytes += part.bytes;
  if (counts) {
    ratio_.learn(bytes, counts->prompt_tokens);
    answer_tokens_ += kAnswerStep * (static_cast<double>(counts->completion_tokens) - answer_tokens_);
  }
  const Place* same = places_.find(marks.parts.back().end);
  const int64_t prompt = std::max<int64_t>(counts            ? counts->prompt_tokens
                                           : same != nullptr ? same->tokens
                                                             : ratio_.tokens(bytes),
                                           1);
  const int64_t answer = counts ? counts->completion_tokens : static_cast<int64_t>(answer_tokens_);
  const Spans spans = place(arrival, prompt);
  std::vector<uint64_t> output_ids;
  if (outcome.status == 200) {
    Place& asked = places_.touch(marks.parts.back().end);
    asked.asked = true;
    asked.answer_tokens = answer;
    for (int64_t at = prompt / route::kBlockTokens + 1; at <= (prompt + answer) / route::kBlockTokens; ++at)
      output_ids.push_back(block_id(marks.parts.back().end.lo, kAnswer, at * route::kBlockTokens - prompt));
  }

  append_ms(out, "{\"timestamp\":", arrival.unix_us);
  absl::StrAppend(&out, ",\"input_length\":", prompt, ",\"output_length\":", answer,
                  ",\"block_size\":", route::kBlockTokens);
  if (!arrival.set.is_zero()) append_text(out, "set", arrival.set.hex());
  if (!arrival.session.is_zero()) append_text(out, "session", arrival.session.hex());
  if (!arrival.key.empty()) append_text(out, "key", arrival.key);
  absl::StrAppend(&out, ",\"turn\":", marks.turn);
  const int64_t prefix = arrival.set.is_zero() ? 0 : spans.tokens_of(marks, arrival.prefix_bytes);
  if (prefix > 0) absl::StrAppend(&out, ",\"prefix_length\":", prefix);
  append_numbers(out, "hash_ids", spans.ids(marks));
  if (!output_ids.empty()) append_numbers(out, "output_hash_ids", output_ids);
  append_messages(out, marks, spans.ends);
  if (!salt_name_.empty()) append_text(out, "salt", salt_name_);
  append_text(out, "model", arrival.model);
  if (held.outcome) append_outcome(out, outcome);
  if (!counts) out += ",\"estimated\":true";
  out += held.outcome ? "}\n" : ",\"unfinished\":true}\n";
  lines_ += 1;
}

}  // namespace troupe
