#include "sim/trace/trace_file.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/regular_file.h"

namespace troupe::sim {

namespace {

// Lines read ahead under skip_bad, to distinguish one with a timestamp far ahead from those behind it.
constexpr size_t kLinesAhead = 16;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

Status bad_timestamp(std::string_view what) {
  return invalid_argument(absl::StrCat("field 'timestamp': ", to_absl(what)));
}

}  // namespace

TraceFile::TraceFile(std::string path, const TraceOptions& options, gzFile file)
    : path_(std::move(path)), skip_bad_(options.skip_bad), rate_scale_(options.rate_scale), file_(file) {}

TraceFile::~TraceFile() {
  gzclose(file_);
}

StatusOr<std::unique_ptr<TraceFile>> TraceFile::open(const std::string& path, const TraceOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(RegularFile opened, open_regular_file(path));
  const gzFile file = gzdopen(opened.file.descriptor(), "rb");
  if (file == nullptr) return absl::ResourceExhaustedError(absl::StrCat(path, ": no memory to read it"));
  opened.file.release();  // gzclose() closes it
  gzbuffer(file, 1 << 18);
  return std::unique_ptr<TraceFile>(new TraceFile(path, options, file));
}

Status TraceFile::error(const Status& status, int64_t number) const {
  return invalid_argument(absl::StrCat(path_, ":", number, ": ", status.message()));
}

// Reads the next line without its newline, by length: a NUL byte in it is a byte like any other. False at the
// end of the file.
StatusOr<bool> TraceFile::read_line() {
  line_.clear();
  line_number_ += 1;
  line_too_long_ = false;
  bool any = false;
  while (true) {
    if (chunk_at_ == chunk_end_) {
      const int got = gzread(file_, chunk_.data(), static_cast<unsigned>(chunk_.size()));
      if (got <= 0) break;
      chunk_at_ = 0;
      chunk_end_ = static_cast<size_t>(got);
    }
    any = true;
    const std::string_view rest(chunk_.data() + chunk_at_, chunk_end_ - chunk_at_);
    const size_t end = rest.find('\n');
    const std::string_view part = rest.substr(0, end);
    line_too_long_ = line_too_long_ || line_.size() + part.size() > TraceReader::kLineBytesMax;
    if (!line_too_long_) line_ += part;
    chunk_at_ += end == std::string_view::npos ? part.size() : part.size() + 1;
    if (end != std::string_view::npos) return true;
  }
  int code = Z_OK;
  const char* message = gzerror(file_, &code);
  if (code != Z_OK && code != Z_STREAM_END)
    return error(invalid_argument(absl::StrCat("cannot be read: ", message)), line_number_);
  return any;
}

// Returns the error of an unusable line, or counts the line.
Status TraceFile::refuse(const Status& status, int64_t number) {
  if (!skip_bad_) return error(status, number);
  if (skipped_ == 0) first_refusal_ = std::string(error(status, number).message());
  skipped_ += 1;
  return absl::OkStatus();
}

// Parses line_: a table's, once there was a heading, or JSON.
Status TraceFile::parse(TraceLine& out) {
  if (line_too_long_) {
    return invalid_argument(
        absl::StrCat("the line is longer than ", TraceReader::kLineBytesMax >> 20, " MB"));
  }
  TROUPE_RETURN_IF_ERROR(table_ ? table_->parse(line_, out.request, out.facts)
                                : parser_.parse(line_, out.request, &out.facts));
  // One run has one block size: the one of the lines with ids, if there are any.
  if (out.facts.has_ids || out.facts.has_block_size) {
    block_tokens_ = out.request.block_tokens;
  } else {
    out.request.block_tokens = block_tokens_;
  }
  return out.facts.has_ids ? absl::OkStatus() : LengthsOnly::check(out.request);
}

// The next line that is a request, with any timestamp.
StatusOr<bool> TraceFile::read_parsed(TraceLine& out) {
  while (true) {
    TROUPE_ASSIGN_OR_RETURN(const bool more, read_line());
    if (!more) return false;
    if (!line_too_long_ && line_.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (line_count_ == 0 && line_.starts_with(kByteOrderMark)) line_.erase(0, kByteOrderMark.size());
    Status status;
    if (line_count_++ == 0 && !line_too_long_ && CsvTrace::is_heading(line_)) {
      auto table = CsvTrace::parse_heading(line_);
      status = table.status();
      if (table.ok()) {
        table_ = *std::move(table);
        continue;
      }
    } else {
      status = parse(out);
      out.number = line_number_;
      if (status.ok()) return true;
    }
    TROUPE_RETURN_IF_ERROR(refuse(status, line_number_));
  }
}

// Takes one of the lines read ahead: all that the file has, up to kLinesAhead behind it.
StatusOr<bool> TraceFile::take_ahead(TraceLine& out) {
  while (lines_ahead_.size() <= kLinesAhead && !ended_) {
    TraceLine line;
    TROUPE_ASSIGN_OR_RETURN(const bool more, read_parsed(line));
    ended_ = !more;
    if (more) lines_ahead_.push_back(std::move(line));
  }
  if (lines_ahead_.empty()) return false;
  out = std::move(lines_ahead_.front());
  lines_ahead_.pop_front();
  return true;
}

Status TraceFile::check_time(Duration at) const {
  if (at < last_at_) {
    return bad_timestamp(absl::StrCat("lies before the line above (",
                                      std::chrono::nanoseconds(last_at_).count() / 1e6,
                                      " ms); lines must be in order of time"));
  }
  const auto span = first_at_ ? at - *first_at_ : Duration::zero();
  if (static_cast<double>(span.count()) / rate_scale_ > static_cast<double>(TraceReader::kSpanMax.count())) {
    return bad_timestamp(absl::StrCat("lies ", span / std::chrono::seconds(1),
                                      " s after the trace's first; a run has at most ",
                                      TraceReader::kSpanMax / std::chrono::seconds(1), " s"));
  }
  // In two lines of the wrong order either may be wrong; two or more behind one prove that one wrong.
  const auto behind = static_cast<size_t>(std::count_if(
      lines_ahead_.begin(), lines_ahead_.end(),
      [this, at](const TraceLine& below) { return below.request.at >= last_at_ && below.request.at < at; }));
  if (behind >= 2 && behind * 2 > lines_ahead_.size()) {
    return bad_timestamp(absl::StrCat("lies ahead of ", behind, " of the ", lines_ahead_.size(),
                                      " lines below; lines must be in order of time"));
  }
  return absl::OkStatus();
}

// A trace with most lines skipped is refused: the rest is another trace.
Status TraceFile::check_enough() const {
  if (skipped_ * 2 <= line_count_) return absl::OkStatus();
  return invalid_argument(absl::StrCat(path_, ": ", skipped_, " of its ", line_count_,
                                       " lines cannot be used; ", first_refusal_));
}

StatusOr<bool> TraceFile::next(TraceLine& out) {
  while (true) {
    bool more = false;
    if (skip_bad_) {
      TROUPE_ASSIGN_OR_RETURN(more, take_ahead(out));
    } else {
      TROUPE_ASSIGN_OR_RETURN(more, read_parsed(out));
    }
    if (!more) {
      TROUPE_RETURN_IF_ERROR(check_enough());
      return false;
    }
    const Status status = check_time(out.request.at);
    if (!status.ok()) {
      TROUPE_RETURN_IF_ERROR(refuse(status, out.number));
      continue;
    }
    last_at_ = out.request.at;
    if (!first_at_) first_at_ = out.request.at;
    return true;
  }
}

}  // namespace troupe::sim
