#pragma once

// The one strict JSON reader. Strict means: RFC 8259 with valid UTF-8, one value and nothing after it,
// duplicate keys refused (at every depth), non-finite numbers refused, depth and size bounded. It reads
// request bodies of both programs, config.json, tokenizer.json, safetensors headers and workers' answers,
// because two parsers that disagree are a hole. simdjson does the lexing; the added strictness is ours.

#include <boost/json/value.hpp>
#include <string>
#include <string_view>

#include "common/core/status.h"

namespace troupe {

// Some editors begin a file with it; it is no part of its text.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

namespace bj = boost::json;

struct JsonLimits {
  size_t bytes_max = 64u << 20;
  int depth_max = 64;
};

// Parses into a tree in document order. Errors (kInvalidArgument) name the byte offset or the key's path.
StatusOr<bj::value> parse_json(std::string_view text, const JsonLimits& limits = {});
// Reads and parses a file; errors carry the path. Files come from other programs: an integer of more than 64
// bits, which many tokenizer_config.json give as "no limit" (10^30), is read as a double.
StatusOr<bj::value> read_json_file(const std::string& path, const JsonLimits& limits = {});

// Serialises compactly, with non-ASCII kept as UTF-8.
std::string to_json(const bj::value& value);
// Appends `text` as a JSON string literal, quotes included. REQUIRES: valid UTF-8.
void append_json_string(std::string& out, std::string_view text);

bool is_valid_utf8(std::string_view text);

}  // namespace troupe
