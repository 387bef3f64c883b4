// One line of a trace: strict reading, and writing.

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "sim/trace/trace.h"

namespace troupe::sim {

namespace {

constexpr int kDepthMax = 16;

Status bad_field(std::string_view field, std::string_view what) {
  return invalid_argument(absl::StrCat("field '", to_absl(field), "': ", to_absl(what)));
}

Status read_count(simdjson::dom::element value, std::string_view field, int64_t least, int64_t most,
                  int64_t& out) {
  if (!value.is_int64() || value.get_int64().value_unsafe() < least ||
      value.get_int64().value_unsafe() > most) {
    return bad_field(field, absl::StrCat("must be a whole number from ", least, " to ", most));
  }
  out = value.get_int64().value_unsafe();
  return absl::OkStatus();
}

Status read_name(simdjson::dom::element value, std::string_view field, uint64_t& out) {
  if (value.is_string()) {
    out = id_of(value.get_string().value_unsafe());
    return absl::OkStatus();
  }
  if (value.is_int64() || value.is_uint64()) {
    const std::string digits = value.is_int64() ? std::to_string(value.get_int64().value_unsafe())
                                                : std::to_string(value.get_uint64().value_unsafe());
    out = id_of(digits);
    return absl::OkStatus();
  }
  return bad_field(field, "must be a string or a whole number");
}

Status read_ids(simdjson::dom::element value, std::string_view field, std::vector<uint64_t>& out) {
  out.clear();
  simdjson::dom::array ids;
  if (value.get(ids)) return bad_field(field, "must be a list of whole numbers");
  for (const simdjson::dom::element id : ids) {
    if (id.is_int64() && id.get_int64().value_unsafe() >= 0) {
      out.push_back(static_cast<uint64_t>(id.get_int64().value_unsafe()));
    } else if (id.is_uint64()) {
      out.push_back(id.get_uint64().value_unsafe());
    } else {
      return bad_field(field, absl::StrCat("entry ", out.size(), " must be a whole number >= 0"));
    }
  }
  return absl::OkStatus();
}

// The fields of a line, in the order in which a missing one is reported.
enum Field {
  kTimestamp,
  kInput,
  kOutput,
  kIds,
  kBlockSize,
  kSet,
  kSession,
  kTurn,
  kPrefix,
  kOutputIds,
  kKey,
  kSalt,
  kStatus,
  kUnfinished,
  kMessageEnds,
  kMessageIds,
  kMessageAnswers,
  kFieldCount
};
constexpr std::array<std::string_view, kFieldCount> kNames{
    "timestamp",    "input_length",  "output_length",   "hash_ids", "block_size", "set",    "session",
    "turn",         "prefix_length", "output_hash_ids", "key",      "salt",       "status", "unfinished",
    "message_ends", "message_ids",   "message_answers"};
constexpr int kRequired = kOutput + 1;

// The field of that name; kFieldCount: none.
Field field_of(std::string_view name) {
  if (name == "session_id") return kSession;
  return static_cast<Field>(std::find(kNames.begin(), kNames.end(), name) - kNames.begin());
}

Status read_field(Field field, simdjson::dom::element value, TraceRequest& out) {
  int64_t number = 0;
  const std::string_view name = kNames[field];
  switch (field) {
    case kTimestamp: {
      if (!value.is_number()) return bad_field(name, "must be a number of milliseconds");
      const double ms = value.get_double().value_unsafe();
      if (!(ms >= 0 && ms <= TraceRequest::kTimestampMsMax))
        return bad_field(name, "must be >= 0 ms (and below 300 years)");
      out.at = Duration(std::llround(ms * 1e6));
      return absl::OkStatus();
    }
    case kInput:
      TROUPE_RETURN_IF_ERROR(read_count(value, name, 1, TraceReader::kTokensMax, number));
      out.input_tokens = static_cast<int32_t>(number);
      return absl::OkStatus();
    case kOutput:
      TROUPE_RETURN_IF_ERROR(read_count(value, name, 0, TraceReader::kTokensMax, number));
      out.output_tokens = static_cast<int32_t>(number);
      return absl::OkStatus();
    case kBlockSize:
      TROUPE_RETURN_IF_ERROR(read_count(value, name, 1, TraceRequest::kBlockTokensMax, number));
      out.block_tokens = static_cast<int32_t>(number);
      return absl::OkStatus();
    case kTurn:
      TROUPE_RETURN_IF_ERROR(read_count(value, name, 1, INT32_MAX, number));
      out.turn = static_cast<int32_t>(number);
      return absl::OkStatus();
    case kPrefix:
      TROUPE_RETURN_IF_ERROR(read_count(value, name, 1, TraceReader::kTokensMax, number));
      out.prefix_tokens = static_cast<int32_t>(number);
      return absl::OkStatus();
    case kSet:
      return read_name(value, name, out.set);
    case kSession:
      return read_name(value, name, out.session);
    case kKey:
      return read_name(value, name, out.key);
    case kIds:
      return read_ids(value, name, out.blocks);
    case kOutputIds:
      return read_ids(value, name, out.output_blocks);
    default:
      break;
  }
  return absl::OkStatus();
}

Status read_places(simdjson::dom::element value, std::string_view field, std::vector<int32_t>& out) {
  out.clear();
  simdjson::dom::array places;
  if (value.get(places)) return bad_field(field, "must be a list of whole numbers");
  for (const simdjson::dom::element place : places) {
    int64_t number = -1;
    if (place.get(number) || number < 0 || number > TraceReader::kTokensMax)
      return bad_field(field, absl::StrCat("entry ", out.size(), " must be a whole number >= 0"));
    out.push_back(static_cast<int32_t>(number));
  }
  return absl::OkStatus();
}

// Fields of records only; in other traces `status` may be anything.
Status read_fact(Field field, simdjson::dom::element value, RecordedFacts& out) {
  const std::string_view name = kNames[field];
  switch (field) {
    case kSalt:
      return read_name(value, name, out.salt);
    case kStatus: {
      constexpr int64_t kAnswered = 200, kTooManyRequests = 429, kServerErrors = 500;
      int64_t status = 0;
      if (value.get(status)) return absl::OkStatus();
      out.answered = status == kAnswered;
      out.failed |= status == kTooManyRequests || status >= kServerErrors;
      return absl::OkStatus();
    }
    case kUnfinished: {
      bool unfinished = false;
      if (!value.get(unfinished)) out.failed |= unfinished;
      return absl::OkStatus();
    }
    case kMessageEnds:
      return read_places(value, name, out.ends);
    case kMessageIds:
      return read_ids(value, name, out.ids);
    default:
      return read_places(value, name, out.answers);
  }
}

Status check_messages(const TraceRequest& request, const RecordedFacts& facts) {
  if (facts.ids.empty() && facts.ends.empty()) return absl::OkStatus();
  if (facts.ids.size() != facts.ends.size()) {
    return bad_field("message_ids", absl::StrCat("has ", facts.ids.size(), " ids, but there are ",
                                                 facts.ends.size(), " message_ends"));
  }
  if (!std::is_sorted(facts.ends.begin(), facts.ends.end()) || facts.ends.back() != request.input_tokens) {
    return bad_field("message_ends",
                     absl::StrCat("must not fall, and end with input_length, ", request.input_tokens));
  }
  if (!std::is_sorted(facts.answers.begin(), facts.answers.end()) ||
      (!facts.answers.empty() && static_cast<size_t>(facts.answers.back()) >= facts.ids.size())) {
    return bad_field("message_answers",
                     absl::StrCat("must rise, and stay below the number of messages, ", facts.ids.size()));
  }
  return absl::OkStatus();
}

// `has_ids`: a line without hash_ids gets its ids later.
Status check_blocks(const TraceRequest& request, bool has_ids) {
  const int64_t full = request.input_tokens / request.block_tokens;
  const int64_t all = (request.input_tokens + request.block_tokens - 1) / request.block_tokens;
  const auto count = static_cast<int64_t>(request.blocks.size());
  if (has_ids && count != full && count != all) {
    return bad_field("hash_ids", absl::StrCat("has ", count, " ids, but a prompt of ", request.input_tokens,
                                              " tokens has ", all, " blocks of ", request.block_tokens));
  }
  if (request.prefix_tokens > request.input_tokens) {
    return bad_field("prefix_length", absl::StrCat("must be at most input_length, ", request.input_tokens));
  }
  if (!has_ids && !request.output_blocks.empty())
    return bad_field("output_hash_ids", "is there without hash_ids, which it continues");
  const int64_t after = (int64_t{request.input_tokens} + request.output_tokens) / request.block_tokens;
  if (static_cast<int64_t>(request.output_blocks.size()) > after - full) {
    return bad_field("output_hash_ids",
                     absl::StrCat("has ", request.output_blocks.size(), " ids, but the answer completes ",
                                  after - full, " blocks"));
  }
  return absl::OkStatus();
}

}  // namespace

struct TraceLineParser::Impl {
  simdjson::dom::parser parser;
  std::string padded;
};

TraceLineParser::TraceLineParser() : impl_(std::make_unique<Impl>()) {}
TraceLineParser::~TraceLineParser() = default;

Status TraceLineParser::parse(std::string_view line, TraceRequest& out, RecordedFacts* facts) {
  impl_->padded.reserve(line.size() + simdjson::SIMDJSON_PADDING);
  impl_->padded.assign(line);
  if (impl_->parser.capacity() < line.size() || line.empty()) {
    if (impl_->parser.allocate(std::max<size_t>(line.size(), 4096), kDepthMax)) {
      return absl::ResourceExhaustedError("no memory for a line this long");
    }
  }
  simdjson::dom::element root;
  if (const auto error = impl_->parser.parse(impl_->padded.data(), line.size(), false).get(root)) {
    return invalid_argument(absl::StrCat("is no JSON object: ", simdjson::error_message(error)));
  }
  simdjson::dom::object object;
  if (root.get(object)) return invalid_argument("must be a JSON object, one a line");
  out.reset();
  if (facts != nullptr) facts->reset();
  uint32_t seen = 0;
  for (const auto [key, value] : object) {
    const Field field = field_of(key);
    if (field == kFieldCount) continue;
    if ((seen >> field & 1) != 0) return bad_field(key, "is there twice");
    seen |= 1u << field;
    if (field < kSalt) {
      TROUPE_RETURN_IF_ERROR(read_field(field, value, out));
    } else if (facts != nullptr) {
      TROUPE_RETURN_IF_ERROR(read_fact(field, value, *facts));
    }
  }
  for (int field = 0; field < kRequired; ++field) {
    if ((seen >> field & 1) == 0) return bad_field(kNames[static_cast<size_t>(field)], "is missing");
  }
  const bool has_ids = (seen >> kIds & 1) != 0;
  if (facts != nullptr) {
    facts->has_ids = has_ids;
    facts->has_block_size = (seen >> kBlockSize & 1) != 0;
  }
  TROUPE_RETURN_IF_ERROR(check_blocks(out, has_ids));
  return facts != nullptr ? check_messages(out, *facts) : absl::OkStatus();
}

namespace {

void append_ids(std::string& out, const std::vector<uint64_t>& ids) {
  char digits[24];
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    out.append(digits, std::to_chars(digits, digits + sizeof digits, ids[i]).ptr);
  }
}

void append_name(std::string& out, std::string_view field, std::string_view name) {
  if (name.empty()) return;
  absl::StrAppend(&out, ",\"", to_absl(field), "\":\"", to_absl(name), "\"");
}

}  // namespace

void append_trace_line(std::string& out, const TraceRequest& request, const TraceNames& names) {
  char digits[40];
  const double ms = static_cast<double>(request.at.count()) / 1e6;
  out += "{\"timestamp\":";
  out.append(digits, std::to_chars(digits, digits + sizeof digits, ms).ptr);
  absl::StrAppend(&out, ",\"input_length\":", request.input_tokens,
                  ",\"output_length\":", request.output_tokens);
  if (request.block_tokens != 512) absl::StrAppend(&out, ",\"block_size\":", request.block_tokens);
  append_name(out, "set", names.set);
  append_name(out, "session", names.session);
  append_name(out, "key", names.key);
  if (request.turn > 0) absl::StrAppend(&out, ",\"turn\":", request.turn);
  if (request.prefix_tokens > 0) absl::StrAppend(&out, ",\"prefix_length\":", request.prefix_tokens);
  if (!request.blocks.empty() || request.input_tokens < request.block_tokens) {
    out += ",\"hash_ids\":[";
    append_ids(out, request.blocks);
    out += ']';
  }
  if (!request.output_blocks.empty()) {
    out += ",\"output_hash_ids\":[";
    append_ids(out, request.output_blocks);
    out += ']';
  }
  out += "}\n";
}

}  // namespace troupe::sim
