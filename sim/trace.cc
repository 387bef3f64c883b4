#include "sim/trace.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>

#include "absl/strings/str_cat.h"

namespace troupe::sim {

namespace {

// Lines read ahead under skip_bad, to tell one that lies far ahead from those behind it.
constexpr size_t kLinesAhead = 16;

Status bad_timestamp(std::string_view what) {
  return invalid_argument(absl::StrCat("field 'timestamp': ", to_absl(what)));
}

}  // namespace

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
  int64_t line_count = 0;  // but for empty ones
  int64_t skipped = 0;
  TooLong too_long;
  std::string first_refusal;
  struct Ahead {
    TraceRequest request;
    int64_t line_number = 0;
  };
  std::deque<Ahead> lines_ahead;
  int64_t given = 0;
  Duration last_at{};
  std::optional<Duration> first_at;  // some traces count from 1970
  std::deque<TraceRequest> tick;     // requests of one timestamp, spread already
  std::vector<TraceRequest> spare;
  TraceRequest ahead;  // the first of the next tick
  bool has_ahead = false;
  bool ended = false;       // nothing more to place
  bool file_ended = false;  // nothing more to read ahead

  ~Impl() {
    if (file != nullptr) gzclose(file);
  }
  Status error(const Status& status, int64_t number) const {
    return invalid_argument(absl::StrCat(path, ":", number, ": ", status.message()));
  }
  Status refuse(const Status& status, int64_t number);
  StatusOr<bool> read_line();
  StatusOr<bool> read_parsed(TraceRequest& out);
  StatusOr<bool> take_ahead(TraceRequest& out, int64_t& number);
  StatusOr<bool> read_request(TraceRequest& out);
  void count_too_long(const TraceRequest& request, int64_t number);
  Status check_time(Duration at) const;
  Status check_enough() const;
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
    return error(invalid_argument(absl::StrCat("cannot be read: ", message)), line_number);
  return any;
}

// A line that cannot be used: an error, or one more that is counted.
Status TraceReader::Impl::refuse(const Status& status, int64_t number) {
  if (!options.skip_bad) return error(status, number);
  if (skipped == 0) first_refusal = std::string(error(status, number).message());
  skipped += 1;
  return absl::OkStatus();
}

// The next line that is a request, at whatever time.
StatusOr<bool> TraceReader::Impl::read_parsed(TraceRequest& out) {
  while (true) {
    TROUPE_ASSIGN_OR_RETURN(const bool more, read_line());
    if (!more) return false;
    if (!line_too_long && line.find_first_not_of(" \t\r") == std::string::npos) continue;
    line_count += 1;
    const Status status =
        line_too_long ? invalid_argument(absl::StrCat("the line is longer than ", kLineBytesMax >> 20, " MB"))
                      : parser.parse(line, out);
    if (status.ok()) return true;
    TROUPE_RETURN_IF_ERROR(refuse(status, line_number));
  }
}

// The next of the lines read ahead, which are as many as the file has, up to kLinesAhead behind it.
StatusOr<bool> TraceReader::Impl::take_ahead(TraceRequest& out, int64_t& number) {
  while (lines_ahead.size() <= kLinesAhead && !file_ended) {
    TraceRequest request;
    TROUPE_ASSIGN_OR_RETURN(const bool more, read_parsed(request));
    file_ended = !more;
    if (more) lines_ahead.push_back({std::move(request), line_number});
  }
  if (lines_ahead.empty()) return false;
  out = std::move(lines_ahead.front().request);
  number = lines_ahead.front().line_number;
  lines_ahead.pop_front();
  return true;
}

Status TraceReader::Impl::check_time(Duration at) const {
  if (at < last_at) {
    return bad_timestamp(absl::StrCat("lies before the line above (",
                                      std::chrono::nanoseconds(last_at).count() / 1e6,
                                      " ms); lines must be in order of time"));
  }
  const auto span = first_at ? at - *first_at : Duration::zero();
  if (static_cast<double>(span.count()) / options.rate_scale > static_cast<double>(kSpanMax.count())) {
    return bad_timestamp(absl::StrCat("lies ", span / std::chrono::seconds(1),
                                      " s after the trace's first; a run has at most ",
                                      kSpanMax / std::chrono::seconds(1), " s"));
  }
  // Of one line behind another nobody can tell which is wrong; of two or more behind it, it is.
  const auto behind = static_cast<size_t>(std::count_if(
      lines_ahead.begin(), lines_ahead.end(),
      [this, at](const Ahead& below) { return below.request.at >= last_at && below.request.at < at; }));
  if (behind >= 2 && behind * 2 > lines_ahead.size()) {
    return bad_timestamp(absl::StrCat("lies ahead of ", behind, " of the ", lines_ahead.size(),
                                      " lines below; lines must be in order of time"));
  }
  return absl::OkStatus();
}

// What is left of a trace most of whose lines are skipped is not that trace.
Status TraceReader::Impl::check_enough() const {
  if (skipped * 2 <= line_count) return absl::OkStatus();
  return invalid_argument(
      absl::StrCat(path, ": ", skipped, " of its ", line_count, " lines cannot be used; ", first_refusal));
}

void TraceReader::Impl::count_too_long(const TraceRequest& request, int64_t number) {
  const int64_t room = options.model_tokens_max - request.input_tokens;
  if (options.model_tokens_max == 0 || (room > 0 && request.output_tokens <= room)) return;
  (room > 0 ? too_long.answers : too_long.prompts) += 1;
  if (too_long.first_line == 0) too_long.first_line = number;
}

StatusOr<bool> TraceReader::Impl::read_request(TraceRequest& out) {
  while (true) {
    int64_t number = 0;
    bool more = false;
    if (options.skip_bad) {
      TROUPE_ASSIGN_OR_RETURN(more, take_ahead(out, number));
    } else {
      TROUPE_ASSIGN_OR_RETURN(more, read_parsed(out));
      number = line_number;
    }
    if (!more) {
      TROUPE_RETURN_IF_ERROR(check_enough());
      return false;
    }
    const Status status = check_time(out.at);
    if (!status.ok()) {
      TROUPE_RETURN_IF_ERROR(refuse(status, number));
      continue;
    }
    count_too_long(out, number);
    last_at = out.at;
    if (!first_at) first_at = out.at;
    out.at -= *first_at;
    return true;
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

TraceReader::TooLong TraceReader::too_long() const {
  return impl_->too_long;
}

int64_t TraceReader::skipped_count() const {
  return impl_->skipped;
}

}  // namespace troupe::sim
