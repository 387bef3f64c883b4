#include "sim/trace/csv_trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace troupe::sim {

namespace {

constexpr size_t kColumnsMax = 256;

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// "Request tokens", "request_tokens" → "requesttokens"
std::string plain(std::string_view heading) {
  std::string out;
  for (const char c : heading) {
    if (c == ' ' || c == '_' || c == '-') continue;
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

// The values between commas; in a quoted one a comma is text and "" a quote. False: a quote stays open.
bool split(std::string_view line, std::vector<std::string>& out) {
  size_t count = 0;
  const auto next = [&]() -> std::string& {
    if (count == out.size()) out.emplace_back();
    std::string& value = out[count++];
    value.clear();
    return value;
  };
  std::string* value = &next();
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      *value += line[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      value = &next();
    } else {
      *value += c;
    }
  }
  out.resize(count);
  for (std::string& each : out) each = std::string(trimmed(each));
  return !quoted;
}

template <typename T>
bool parse_value(std::string_view text, T& out) {
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, out);
  return read.ec == std::errc() && read.ptr == end;
}

// Takes that many digits off the front as a number; none: they are not there.
std::optional<int64_t> take_digits(std::string_view& text, size_t count) {
  int64_t value = 0;
  if (text.size() < count || !parse_value(text.substr(0, count), value) || value < 0) return std::nullopt;
  text.remove_prefix(count);
  return value;
}

bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

// "46.6805900" in nanoseconds.
std::optional<Duration> take_seconds(std::string_view& text) {
  const auto whole = take_digits(text, 2);
  if (!whole || *whole > 60) return std::nullopt;  // 60: a leap second
  Duration out = std::chrono::seconds(*whole);
  if (!take(text, '.')) return out;
  Duration unit = std::chrono::milliseconds(100);
  size_t digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits, unit /= 10)
    out += unit * (text[digits] - '0');
  text.remove_prefix(digits);
  return digits > 0 ? std::optional(out) : std::nullopt;
}

// "+02:00": what to take off for UTC.
std::optional<Duration> take_offset(std::string_view text) {
  if (text.empty() || text == "Z" || text == "z") return Duration::zero();
  const int64_t sign = text.front() == '-' ? -1 : 1;
  if (!take(text, '+') && !take(text, '-')) return std::nullopt;
  const auto hours = take_digits(text, 2);
  take(text, ':');
  const auto minutes = take_digits(text, 2);
  if (!hours || !minutes || *hours > 23 || *minutes > 59 || !text.empty()) return std::nullopt;
  return Duration(std::chrono::minutes(sign * (*hours * 60 + *minutes)));
}

}  // namespace

const std::array<CsvTrace::Name, 18> CsvTrace::kNames{{{"timestamp", kTime},
                                                       {"contexttokens", kInput},
                                                       {"requesttokens", kInput},
                                                       {"inputlength", kInput},
                                                       {"prompttokens", kInput},
                                                       {"inputtokens", kInput},
                                                       {"generatedtokens", kOutput},
                                                       {"responsetokens", kOutput},
                                                       {"outputlength", kOutput},
                                                       {"completiontokens", kOutput},
                                                       {"outputtokens", kOutput},
                                                       {"session", kSession},
                                                       {"sessionid", kSession},
                                                       {"set", kSet},
                                                       {"key", kKey},
                                                       {"turn", kTurn},
                                                       {"prefixlength", kPrefix},
                                                       {"blocksize", kBlockSize}}};

std::optional<Duration> parse_date_time(std::string_view text) {
  const auto year = take_digits(text, 4);
  if (!year || *year < 1970 || !take(text, '-')) return std::nullopt;
  const auto month = take_digits(text, 2);
  if (!month || !take(text, '-')) return std::nullopt;
  const auto day = take_digits(text, 2);
  if (!day || (!take(text, ' ') && !take(text, 'T'))) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(*year)),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  const auto hours = take_digits(text, 2);
  if (!date.ok() || *year > 2200 || !hours || *hours > 23 || !take(text, ':')) return std::nullopt;
  const auto minutes = take_digits(text, 2);
  if (!minutes || *minutes > 59 || !take(text, ':')) return std::nullopt;
  const auto seconds = take_seconds(text);
  const auto offset = seconds ? take_offset(text) : std::nullopt;
  if (!offset) return std::nullopt;
  const Duration at = std::chrono::sys_days(date).time_since_epoch() + std::chrono::hours(*hours) +
                      std::chrono::minutes(*minutes) + *seconds - *offset;
  return at < Duration::zero() ? std::nullopt : std::optional(at);
}

bool CsvTrace::is_heading(std::string_view line) {
  const std::string_view text = trimmed(line);
  return !text.empty() && text.front() != '{' && text.front() != '[' &&
         text.find(',') != std::string_view::npos;
}

StatusOr<CsvTrace> CsvTrace::parse_heading(std::string_view line) {
  CsvTrace out;
  if (!split(line, out.headings_)) return invalid_argument("the heading has a quote that stays open");
  if (out.headings_.size() > kColumnsMax)
    return invalid_argument(absl::StrCat("the heading has more than ", kColumnsMax, " columns"));
  for (size_t i = 0; i < out.headings_.size(); ++i) {
    const std::string name = plain(out.headings_[i]);
    const auto known =
        std::find_if(kNames.begin(), kNames.end(), [&](const Name& n) { return n.name == name; });
    if (known == kNames.end()) continue;
    const Field field = known->field;
    if (out.column_of_[field]) {
      return invalid_argument(absl::StrCat("the columns '", out.headings_[*out.column_of_[field]], "' and '",
                                           out.headings_[i], "' tell the same"));
    }
    out.column_of_[field] = i;
    if (name == "requesttokens") out.in_seconds_ = true;
  }
  constexpr std::array<std::string_view, 3> kNeeded{"TIMESTAMP", "ContextTokens (or input_length)",
                                                    "GeneratedTokens (or output_length)"};
  for (size_t field = 0; field < kNeeded.size(); ++field) {
    if (out.column_of_[field]) continue;
    return invalid_argument(
        absl::StrCat("neither a JSON object nor the heading of a table: it has no column ",
                     to_absl(kNeeded[field]), ", only ", absl::StrJoin(out.headings_, ", ").substr(0, 200)));
  }
  return out;
}

Status CsvTrace::refuse(Field field, std::string_view text, std::string_view what) const {
  return invalid_argument(absl::StrCat("field '", headings_[*column_of_[field]], "': ", to_absl(what),
                                       ", not '", to_absl(text.substr(0, 100)), "'"));
}

Status CsvTrace::read_field(Field field, std::string_view text, TraceRequest& out,
                            RecordedFacts& facts) const {
  if (field == kTime) {
    const std::optional<Duration> date = parse_date_time(text);
    const double unit = in_seconds_ ? 1e9 : 1e6;
    double number = 0;
    if (!date && (!parse_value(text, number) ||
                  !(number >= 0 && number * unit <= TraceRequest::kTimestampMsMax * 1e6))) {
      return refuse(field, text,
                    absl::StrCat("must be a time as 2023-11-16 18:15:46.68, or a number of ",
                                 in_seconds_ ? "seconds" : "milliseconds"));
    }
    out.at = date ? *date : Duration(std::llround(number * unit));
    return absl::OkStatus();
  }
  if (field == kSession || field == kSet || field == kKey) {
    uint64_t& id = field == kSession ? out.session : field == kSet ? out.set : out.key;
    id = text.empty() ? 0 : id_of(text);
    return absl::OkStatus();
  }
  if (text.empty() && field != kInput && field != kOutput) return absl::OkStatus();
  const int64_t least = field == kOutput ? 0 : 1;
  const int64_t most = field == kTurn        ? INT32_MAX
                       : field == kBlockSize ? TraceRequest::kBlockTokensMax
                                             : TraceRequest::kTokensMax;
  int64_t number = 0;
  if (!parse_value(text, number) || number < least || number > most)
    return refuse(field, text, absl::StrCat("must be a whole number from ", least, " to ", most));
  int32_t& count = field == kInput    ? out.input_tokens
                   : field == kOutput ? out.output_tokens
                   : field == kTurn   ? out.turn
                   : field == kPrefix ? out.prefix_tokens
                                      : out.block_tokens;
  count = static_cast<int32_t>(number);
  facts.has_block_size = facts.has_block_size || field == kBlockSize;
  return absl::OkStatus();
}

Status CsvTrace::parse(std::string_view line, TraceRequest& out, RecordedFacts& facts) {
  if (!split(line, values_)) return invalid_argument("has a quote that stays open");
  if (values_.size() != headings_.size()) {
    return invalid_argument(absl::StrCat("has ", values_.size(), " values, but the heading names ",
                                         headings_.size(), " columns"));
  }
  out.reset();
  facts.reset();
  facts.has_ids = false;
  for (size_t i = 0; i < kFieldCount; ++i) {
    const auto field = static_cast<Field>(i);
    if (column_of_[i]) TROUPE_RETURN_IF_ERROR(read_field(field, values_[*column_of_[i]], out, facts));
  }
  if (out.prefix_tokens > out.input_tokens) {
    return refuse(kPrefix, absl::StrCat(out.prefix_tokens),
                  absl::StrCat("must be at most the prompt's tokens, ", out.input_tokens));
  }
  return absl::OkStatus();
}

}  // namespace troupe::sim
