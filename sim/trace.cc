#include "sim/trace.h"

#include <simdjson.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <deque>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/core/block_hash.h"

namespace troupe::sim {

namespace {

constexpr int64_t kBlockTokensMax = 1 << 16;
constexpr double kTimestampMsMax = 9e12;  // three hundred years: beyond it, nanoseconds overflow
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

// The fields a line can have, in the order in which a missing one is complained of.
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
  kFieldCount
};
constexpr std::array<std::string_view, kFieldCount> kNames{
    "timestamp", "input_length", "output_length", "hash_ids",      "block_size",
    "set",       "session",      "turn",          "prefix_length", "output_hash_ids"};
constexpr int kRequired = kIds + 1;

Status read_field(Field field, simdjson::dom::element value, TraceRequest& out) {
  int64_t number = 0;
  const std::string_view name = kNames[field];
  switch (field) {
    case kTimestamp: {
      if (!value.is_number()) return bad_field(name, "must be a number of milliseconds");
      const double ms = value.get_double().value_unsafe();
      if (!(ms >= 0 && ms <= kTimestampMsMax))
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
      TROUPE_RETURN_IF_ERROR(read_count(value, name, 1, kBlockTokensMax, number));
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
    case kIds:
      return read_ids(value, name, out.blocks);
    case kOutputIds:
      return read_ids(value, name, out.output_blocks);
    case kFieldCount:
      break;
  }
  return absl::OkStatus();
}

Status check_blocks(const TraceRequest& request) {
  const int64_t full = request.input_tokens / request.block_tokens;
  const int64_t all = (request.input_tokens + request.block_tokens - 1) / request.block_tokens;
  const auto told = static_cast<int64_t>(request.blocks.size());
  if (told != full && told != all) {
    return bad_field("hash_ids", absl::StrCat("has ", told, " ids, but a prompt of ", request.input_tokens,
                                              " tokens has ", all, " blocks of ", request.block_tokens));
  }
  if (request.prefix_tokens > request.input_tokens) {
    return bad_field("prefix_length", absl::StrCat("must be at most input_length, ", request.input_tokens));
  }
  const int64_t after = (int64_t{request.input_tokens} + request.output_tokens) / request.block_tokens;
  if (static_cast<int64_t>(request.output_blocks.size()) > after - full) {
    return bad_field("output_hash_ids",
                     absl::StrCat("has ", request.output_blocks.size(), " ids, but the answer completes ",
                                  after - full, " blocks"));
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t id_of(std::string_view name) {
  const uint64_t id = hash_bytes(name).lo;
  return id == 0 ? 1 : id;
}

struct TraceLineParser::Impl {
  simdjson::dom::parser parser;
  std::string padded;
};

TraceLineParser::TraceLineParser() : impl_(std::make_unique<Impl>()) {}
TraceLineParser::~TraceLineParser() = default;

Status TraceLineParser::parse(std::string_view line, TraceRequest& out) {
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
  out.at = {};
  out.block_tokens = 512;
  out.turn = out.prefix_tokens = 0;
  out.set = out.session = 0;
  out.blocks.clear();
  out.output_blocks.clear();
  uint32_t seen = 0;
  for (const auto [key, value] : object) {
    const auto found = std::find(kNames.begin(), kNames.end(), key);
    if (found == kNames.end()) continue;
    const auto field = static_cast<Field>(found - kNames.begin());
    if ((seen >> field & 1) != 0) return bad_field(key, "is there twice");
    seen |= 1u << field;
    TROUPE_RETURN_IF_ERROR(read_field(field, value, out));
  }
  for (int field = 0; field < kRequired; ++field) {
    if ((seen >> field & 1) == 0) return bad_field(kNames[static_cast<size_t>(field)], "is missing");
  }
  return check_blocks(out);
}

struct TraceReader::Impl {
  std::string path;
  TraceOptions options;
  gzFile file = nullptr;
  TraceLineParser parser;
  std::vector<char> chunk = std::vector<char>(1 << 18);
  size_t chunk_at = 0, chunk_end = 0;
  std::string line;
  bool line_too_long = false;  // its rest was passed over
  int64_t line_number = 0;
  int64_t skipped = 0;
  int64_t given = 0;
  Duration last_at{};
  std::optional<Duration> first_at;  // some traces count from 1970
  std::deque<TraceRequest> tick;     // requests of one timestamp, spread already
  std::vector<TraceRequest> spare;
  TraceRequest ahead;  // the first of the next tick
  bool has_ahead = false;
  bool ended = false;

  ~Impl() {
    if (file != nullptr) gzclose(file);
  }
  Status error(const Status& status) const {
    return invalid_argument(absl::StrCat(path, ":", line_number, ": ", status.message()));
  }
  StatusOr<bool> read_line();
  StatusOr<bool> read_request(TraceRequest& out);
  Status fill_tick();
};

// The next line without its newline, by length: a NUL byte in it is a byte like any other. False at the end
// of the file.
StatusOr<bool> TraceReader::Impl::read_line() {
  line.clear();
  line_number += 1;
  line_too_long = false;
  bool any = false;
  while (true) {
    if (chunk_at == chunk_end) {
      const int got = gzread(file, chunk.data(), static_cast<unsigned>(chunk.size()));
      if (got <= 0) break;
      chunk_at = 0;
      chunk_end = static_cast<size_t>(got);
    }
    any = true;
    const std::string_view rest(chunk.data() + chunk_at, chunk_end - chunk_at);
    const size_t end = rest.find('\n');
    const std::string_view part = rest.substr(0, end);
    line_too_long = line_too_long || line.size() + part.size() > kLineBytesMax;
    if (!line_too_long) line += part;
    chunk_at += end == std::string_view::npos ? part.size() : part.size() + 1;
    if (end != std::string_view::npos) return true;
  }
  int code = Z_OK;
  const char* message = gzerror(file, &code);
  if (code != Z_OK && code != Z_STREAM_END)
    return error(invalid_argument(absl::StrCat("cannot be read: ", message)));
  return any;
}

StatusOr<bool> TraceReader::Impl::read_request(TraceRequest& out) {
  while (true) {
    TROUPE_ASSIGN_OR_RETURN(const bool more, read_line());
    if (!more) return false;
    if (!line_too_long && line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Status status =
        line_too_long ? invalid_argument(absl::StrCat("the line is longer than ", kLineBytesMax >> 20, " MB"))
                      : parser.parse(line, out);
    if (status.ok() && out.at < last_at) {
      status = bad_field("timestamp", absl::StrCat("lies before the line above (",
                                                   std::chrono::nanoseconds(last_at).count() / 1e6,
                                                   " ms); lines must be in order of time"));
    }
    if (status.ok()) {
      last_at = out.at;
      if (!first_at) first_at = out.at;
      out.at -= *first_at;
      return true;
    }
    if (!options.skip_bad) return error(status);
    skipped += 1;
  }
}

// Takes all requests of the next timestamp and places them between it and the one after.
Status TraceReader::Impl::fill_tick() {
  if (!has_ahead && !ended) {
    TROUPE_ASSIGN_OR_RETURN(has_ahead, read_request(ahead));
    ended = !has_ahead;
  }
  if (!has_ahead) return absl::OkStatus();
  const Duration begin = ahead.at;
  while (has_ahead && ahead.at == begin) {
    tick.push_back(std::move(ahead));
    ahead = TraceRequest();
    if (!spare.empty()) {
      ahead = std::move(spare.back());
      spare.pop_back();
    }
    TROUPE_ASSIGN_OR_RETURN(has_ahead, read_request(ahead));
    ended = !has_ahead;
  }
  const Duration width = has_ahead ? std::min(options.spread, ahead.at - begin) : options.spread;
  const auto count = static_cast<int64_t>(tick.size());
  for (int64_t i = 0; i < count; ++i) {
    const double at = static_cast<double>((begin + width * i / count).count()) / options.rate_scale;
    tick[static_cast<size_t>(i)].at = Duration(std::llround(at));
  }
  return absl::OkStatus();
}

TraceReader::TraceReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TraceReader::~TraceReader() = default;

StatusOr<std::unique_ptr<TraceReader>> TraceReader::open(const std::string& path,
                                                         const TraceOptions& options) {
  if (!(options.rate_scale > 0) || !std::isfinite(options.rate_scale)) {
    return invalid_argument("the rate scale must be a number > 0");
  }
  if (options.spread < Duration::zero()) return invalid_argument("the spread must be >= 0 ms");
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->options = options;
  impl->file = gzopen(path.c_str(), "rb");
  if (impl->file == nullptr) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  gzbuffer(impl->file, 1 << 18);
  return std::unique_ptr<TraceReader>(new TraceReader(std::move(impl)));
}

StatusOr<bool> TraceReader::next(TraceRequest& out) {
  Impl& in = *impl_;
  if (in.given == in.options.requests_max) return false;
  if (in.tick.empty()) TROUPE_RETURN_IF_ERROR(in.fill_tick());
  if (in.tick.empty()) return false;
  std::swap(out, in.tick.front());
  in.spare.push_back(std::move(in.tick.front()));
  in.tick.pop_front();
  in.given += 1;
  return true;
}

int64_t TraceReader::skipped_count() const {
  return impl_->skipped;
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
  if (request.turn > 0) absl::StrAppend(&out, ",\"turn\":", request.turn);
  if (request.prefix_tokens > 0) absl::StrAppend(&out, ",\"prefix_length\":", request.prefix_tokens);
  out += ",\"hash_ids\":[";
  append_ids(out, request.blocks);
  out += ']';
  if (!request.output_blocks.empty()) {
    out += ",\"output_hash_ids\":[";
    append_ids(out, request.output_blocks);
    out += ']';
  }
  out += "}\n";
}

}  // namespace troupe::sim
