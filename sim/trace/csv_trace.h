#pragma once

// A trace as a table with a heading, a request a line. It has lengths only (see LengthsOnly):
//
// clang-format off
//   TIMESTAMP,ContextTokens,GeneratedTokens              Azure's traces of LLM inference, 2023 and 2024
//   2023-11-16 18:15:46.6805900,374,44
//
//   Timestamp,Model,Request tokens,Response tokens,…     BurstGPT: seconds
//   5,ChatGPT,472,18,…
//
//   timestamp,input_length,output_length,session         this project's own names: milliseconds
//   27000,6758,500,a17
// clang-format on
//
// A column's name counts without its case, spaces and underscores. Further columns that are read: session (or
// session id), set, key, turn, prefix length, block size; all others are passed over.
//
// Sources: Patel et al., "Splitwise", ISCA 2024; Stojkovic et al., "DynamoLLM", HPCA 2025 (their traces:
// AzurePublicDataset); Wang et al., "BurstGPT", 2024.

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/status.h"
#include "sim/trace/trace_request.h"

namespace troupe::sim {

// Not thread-safe.
class CsvTrace {
 public:
  // A file's first line that is meant as a heading: it has columns, and no JSON begins with it.
  static bool is_heading(std::string_view line);
  // Errors name the missing column and those that there are.
  static StatusOr<CsvTrace> parse_heading(std::string_view line);
  // A request at its own timestamp, without block ids, and of kBlockTokens where there is no such column.
  // Errors name the field as the heading does.
  Status parse(std::string_view line, TraceRequest& out, RecordedFacts& facts);

 private:
  enum Field { kTime, kInput, kOutput, kSession, kSet, kKey, kTurn, kPrefix, kBlockSize, kFieldCount };
  struct Name {
    std::string_view name;
    Field field;
  };
  static const std::array<Name, 18> kNames;
  Status read_field(Field field, std::string_view text, TraceRequest& out, RecordedFacts& facts) const;
  Status refuse(Field field, std::string_view text, std::string_view what) const;

  std::array<std::optional<size_t>, kFieldCount> column_of_;
  std::vector<std::string> headings_;
  bool in_seconds_ = false;
  std::vector<std::string> values_;  // of the line; their memory is reused
};

// "2023-11-16 18:15:46.6805900", also with a T between date and time, a Z or an offset as +00:00 behind it:
// since 1970 (without an offset as if in UTC). None: it is no such time.
std::optional<Duration> parse_date_time(std::string_view text);

}  // namespace troupe::sim
