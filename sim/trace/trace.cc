#include "sim/trace/trace.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "sim/trace/lengths_only.h"
#include "sim/trace/trace_file.h"
#include "sim/trace/trace_join.h"

namespace troupe::sim {

namespace {

double seconds_of(Duration span) {
  return static_cast<double>(span.count()) / 1e9;
}

void note_lengths(const LengthsOnly::Counts& counts, std::vector<std::string>& out) {
  if (counts.requests == 0) return;
  out.push_back(absl::StrCat(
      counts.requests, " lines have no hash_ids, only lengths: ", counts.of_sessions,
      " prompts are taken to continue their session's last one, ", counts.of_sets,
      " to begin with their set's prefix, and nothing else is shared, so hits may be higher live"));
  if (counts.vague_sets > 0) {
    out.push_back(absl::StrCat(
        counts.vague_sets, " of them name a set without a prefix_length: how much it shares is not known"));
  }
}

}  // namespace

struct TraceReader::Impl {
  // One file and its next line.
  struct Input {
    std::unique_ptr<TraceFile> file;
    TraceLine line;
    bool has_line = false;
    std::optional<Duration> begin;
    Duration end{};  // of the last line given
  };

  TraceOptions options;
  std::vector<Input> inputs;
  bool is_begun = false;
  TraceJoin join;
  LengthsOnly lengths;
  std::string first_place;  // "<path>:<line>" of the first line given
  uint64_t first_salt = 0;
  int32_t first_block_tokens = 0;
  int64_t retries = 0, salt_changes = 0;
  uint64_t last_salt = 0;
  TooLong too_long;
  int64_t given = 0;
  std::optional<Duration> first_at;  // some traces count from 1970
  std::deque<TraceRequest> tick;     // requests of one timestamp, already spread
  std::vector<TraceRequest> spare;
  TraceRequest ahead;  // the first of the next tick
  bool has_ahead = false;
  bool ended = false;  // no more lines

  Status advance(Input& input);
  Status begin();
  Input* earliest();
  Status check_alike(const Input& input);
  StatusOr<bool> read_request(TraceRequest& out);
  void count_too_long(const Input& input);
  Status fill_tick();
};

Status TraceReader::Impl::advance(Input& input) {
  TROUPE_ASSIGN_OR_RETURN(input.has_line, input.file->next(input.line));
  if (input.has_line && !input.begin) input.begin = input.line.request.at;
  if (input.has_line) input.end = input.line.request.at;
  return absl::OkStatus();
}

// Reads all files' first lines, which show whether they can be of one time.
Status TraceReader::Impl::begin() {
  for (Input& input : inputs) TROUPE_RETURN_IF_ERROR(advance(input));
  is_begun = true;
  const Input* const first = earliest();
  if (first == nullptr) return absl::OkStatus();
  first_at = first->begin;
  first_place = absl::StrCat(first->file->path(), ":", first->line.number);
  first_salt = last_salt = first->line.facts.salt;
  first_block_tokens = first->line.request.block_tokens;
  for (const Input& input : inputs) {
    if (!input.has_line || seconds_of(*input.begin - *first_at) / options.rate_scale <= seconds_of(kSpanMax))
      continue;
    return input.file->error(
        invalid_argument(absl::StrCat(
            "field 'timestamp': lies ", std::llround(seconds_of(*input.begin - *first_at)), " s after ",
            first_place, "; files of one trace have one clock, as records do, and a run has at most ",
            kSpanMax / std::chrono::seconds(1), " s")),
        input.line.number);
  }
  return absl::OkStatus();
}

// The file with the earliest line, the first of equals; null: all are at their end.
TraceReader::Impl::Input* TraceReader::Impl::earliest() {
  Input* first = nullptr;
  for (Input& input : inputs) {
    if (input.has_line && (first == nullptr || input.line.request.at < first->line.request.at))
      first = &input;
  }
  return first;
}

// Several files are one trace only if an id means the same text in all of them.
Status TraceReader::Impl::check_alike(const Input& input) {
  const TraceLine& line = input.line;
  if (line.facts.salt != last_salt) salt_changes += 1;
  last_salt = line.facts.salt;
  if (inputs.size() == 1) return absl::OkStatus();
  if (line.facts.salt != first_salt) {
    return input.file->error(
        invalid_argument(absl::StrCat(
            "field 'salt': ", line.facts.salt == 0 ? "is missing, but told by " : "is not as in ",
            first_place,
            ", so equal text has other ids here, and what both could find cached would be lost; gateways "
            "whose records are to be joined need the same record_secret (configs/gateway.yaml)")),
        line.number);
  }
  if (line.request.block_tokens != first_block_tokens) {
    return input.file->error(
        invalid_argument(absl::StrCat("field 'block_size': is ", line.request.block_tokens, ", but ",
                                      first_block_tokens, " in ", first_place,
                                      "; files of one trace have one block size")),
        line.number);
  }
  return absl::OkStatus();
}

void TraceReader::Impl::count_too_long(const Input& input) {
  const TraceRequest& request = input.line.request;
  const int64_t room = options.model_tokens_max - request.input_tokens;
  if (options.model_tokens_max == 0 || (room > 0 && request.output_tokens <= room)) return;
  (room > 0 ? too_long.answers : too_long.prompts) += 1;
  if (too_long.first_line > 0) return;
  too_long.first_path = input.file->path();
  too_long.first_line = input.line.number;
}

StatusOr<bool> TraceReader::Impl::read_request(TraceRequest& out) {
  if (!is_begun) TROUPE_RETURN_IF_ERROR(begin());
  while (Input* const input = earliest()) {
    TROUPE_RETURN_IF_ERROR(check_alike(*input));
    TraceRequest& request = input->line.request;
    const bool is_retry = join.is_retry(request, input->line.facts);
    retries += is_retry ? 1 : 0;
    if (!is_retry) {
      count_too_long(*input);
      join.rename(request, input->line.facts);
      if (!input->line.facts.has_ids) lengths.name_blocks(request);
      std::swap(out, request);
      out.at -= *first_at;
    }
    TROUPE_RETURN_IF_ERROR(advance(*input));
    if (!is_retry) return true;
  }
  return false;
}

// Takes all requests of the next timestamp and spreads them up to the one after.
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
  return open_all(std::vector<std::string>{path}, options);
}

StatusOr<std::unique_ptr<TraceReader>> TraceReader::open_all(const std::vector<std::string>& paths,
                                                             const TraceOptions& options) {
  if (!(options.rate_scale > 0) || !std::isfinite(options.rate_scale)) {
    return invalid_argument("the rate scale must be a number > 0");
  }
  if (options.spread < Duration::zero()) return invalid_argument("the spread must be >= 0 ms");
  if (paths.empty() || paths.size() > kFilesMax)
    return invalid_argument(absl::StrCat("a trace has 1 to ", kFilesMax, " files, not ", paths.size()));
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  for (const std::string& path : paths) {
    for (const Impl::Input& other : impl->inputs) {
      std::error_code ignored;
      if (std::filesystem::equivalent(path, other.file->path(), ignored))
        return invalid_argument(absl::StrCat(path, ": is the same file as ", other.file->path()));
    }
    Impl::Input& input = impl->inputs.emplace_back();
    TROUPE_ASSIGN_OR_RETURN(input.file, TraceFile::open(path, options));
  }
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

const TraceReader::TooLong& TraceReader::too_long() const {
  return impl_->too_long;
}

int64_t TraceReader::skipped_count() const {
  int64_t count = 0;
  for (const Impl::Input& input : impl_->inputs) count += input.file->skipped_count();
  return count;
}

std::vector<std::string> TraceReader::notes() const {
  std::vector<std::string> out;
  if (impl_->retries > 0) {
    out.push_back(
        absl::StrCat(impl_->retries, " lines repeat a request that had failed just before; it counts once"));
  }
  if (impl_->salt_changes > 0) {
    out.push_back(
        absl::StrCat("the salt changes ", impl_->salt_changes,
                     " times, as at a gateway's restart without a record_secret: what was said before "
                     "is not found cached after it"));
  }
  note_lengths(impl_->lengths.counts(), out);
  for (const Impl::Input& input : impl_->inputs) {
    const std::string& path = input.file->path();
    if (!input.begin) {
      if (impl_->inputs.size() > 1) out.push_back(absl::StrCat(path, " has no requests"));
      continue;
    }
    // The records of gateways that served together overlap, each with some other one's.
    const Impl::Input* last = nullptr;  // the last to end, of those that begin before
    for (const Impl::Input& other : impl_->inputs) {
      if (&other == &input || !other.begin || *other.begin > *input.begin) continue;
      if (last == nullptr || other.end > last->end) last = &other;
    }
    if (last == nullptr || last->end >= *input.begin) continue;
    out.push_back(absl::StrCat(path, " begins ", seconds_of(*input.begin - last->end), " s after ",
                               last->file->path(), " has ended: they are not of one time"));
  }
  return out;
}

}  // namespace troupe::sim
