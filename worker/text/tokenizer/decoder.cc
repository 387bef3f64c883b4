// A stage's output for a token is known when the token arrives, with three exceptions, and only these hold
// text back: bytes that are no whole character yet (ByteLevel); a run of <0xNN> tokens, which the original
// decodes to characters only if the whole run is valid UTF-8 (ByteFallback); and characters that Strip would
// remove if the text ended with them.
//
// After the first stage that joins tokens (ByteLevel, Fuse) later stages see one token, the whole text, in
// fragments. Stages that would need all of it at once are refused; no published file has one.

#include "worker/text/tokenizer/decoder.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/text/json_fields.h"
#include "worker/text/tokenizer/byte_level.h"
#include "worker/text/tokenizer/metaspace.h"
#include "worker/text/tokenizer/pattern.h"
#include "worker/text/unicode.h"

namespace troupe {

struct DecodeStage {
  enum class Kind : uint8_t { kByteFallback, kByteLevel, kFuse, kJoinBySpaces, kMetaspace, kReplace, kStrip };
  Kind kind = Kind::kFuse;
  bool joined = false;             // the input is fragments of one token
  std::optional<Pattern> pattern;  // Replace
  std::string content;             // Replace: the replacement. Strip, Metaspace: the character
  size_t start = 0;                // Strip
  size_t stop = 0;
  bool drops_first = false;  // Metaspace: the first token loses its character
};

namespace {

using Kind = DecodeStage::Kind;

constexpr std::string_view kSupported = "ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip";
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr size_t kStagesMax = 32;
constexpr int64_t kStripMax = 1024;

// Returns the byte of "<0xNN>", or -1.
int byte_of_token(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
  };
  int high = digit(token[3]);
  int low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

StatusOr<size_t> strip_count(const JsonItem& item, std::string_view key) {
  const bj::value* value = find_field(item, key);
  int64_t count = value != nullptr && value->is_int64() ? value->get_int64() : -1;
  if (count >= 0 && count <= kStripMax) return static_cast<size_t>(count);
  return invalid_argument(absl::StrCat(field_path(item, key), ": expected a count from 0 to ", kStripMax));
}

StatusOr<DecodeStage> load_stage(const JsonItem& item, const std::string& type) {
  DecodeStage stage;
  if (type == "ByteLevel") {
    stage.kind = Kind::kByteLevel;
  } else if (type == "Fuse") {
    stage.kind = Kind::kFuse;
  } else if (type == "ByteFallback") {
    stage.kind = Kind::kByteFallback;
  } else if (type == "Metaspace") {
    stage.kind = Kind::kMetaspace;
    TROUPE_ASSIGN_OR_RETURN(stage.content, metaspace_replacement(item));
    TROUPE_ASSIGN_OR_RETURN(std::string scheme, metaspace_scheme(item));
    stage.drops_first = scheme != "never";
  } else if (type == "Replace") {
    stage.kind = Kind::kReplace;
    TROUPE_ASSIGN_OR_RETURN(stage.pattern, Pattern::load(item));
    TROUPE_ASSIGN_OR_RETURN(stage.content, string_field(item, "content"));
  } else if (type == "Strip") {
    stage.kind = Kind::kStrip;
    TROUPE_ASSIGN_OR_RETURN(stage.content, string_field(item, "content"));
    if (count_code_points(stage.content) != 1) {
      return invalid_argument(field_path(item, "content") + ": expected one character");
    }
    TROUPE_ASSIGN_OR_RETURN(stage.start, strip_count(item, "start"));
    TROUPE_ASSIGN_OR_RETURN(stage.stop, strip_count(item, "stop"));
  } else {
    return unsupported_component(item, type, kSupported);
  }
  return stage;
}

bool joins(Kind kind) {
  return kind == Kind::kByteLevel || kind == Kind::kFuse || kind == Kind::kJoinBySpaces;
}

// Whether a stage works on a text that arrives in fragments.
bool works_on_fragments(const DecodeStage& stage) {
  if (stage.kind == Kind::kReplace) {
    const std::string* literal = stage.pattern->literal();
    return literal != nullptr && count_code_points(*literal) == 1;
  }
  return stage.kind == Kind::kFuse || stage.kind == Kind::kStrip || stage.kind == Kind::kMetaspace;
}

size_t count_leading(std::string_view text, std::string_view character, size_t count_max) {
  size_t count = 0;
  while (count < count_max && text.substr(count * character.size(), character.size()) == character) ++count;
  return count;
}

size_t count_trailing(std::string_view text, std::string_view character, size_t count_max) {
  size_t count = 0;
  while (count < count_max && text.size() >= character.size() &&
         text.substr(text.size() - character.size()) == character) {
    text.remove_suffix(character.size());
    ++count;
  }
  return count;
}

std::string strip_token(const DecodeStage& stage, std::string_view token) {
  size_t first = count_leading(token, stage.content, stage.start);
  token.remove_prefix(first * stage.content.size());
  token.remove_suffix(count_trailing(token, stage.content, stage.stop) * stage.content.size());
  return std::string(token);
}

std::string replace_character(std::string_view token, std::string_view character, std::string_view by) {
  std::string out;
  size_t done = 0;
  for (size_t at = token.find(character); at != std::string_view::npos; at = token.find(character, done)) {
    out += token.substr(done, at - done);
    out += by;
    done = at + character.size();
  }
  out += token.substr(done);
  return out;
}

}  // namespace

Decoder::Decoder() = default;
Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;

Status Decoder::add(DecodeStage stage, const std::string& where) {
  for (const DecodeStage& earlier : stages_) stage.joined |= joins(earlier.kind);
  if (stage.joined && !works_on_fragments(stage)) {
    return absl::UnimplementedError(
        absl::StrCat(where,
                     ": not supported behind a decoder that joins all tokens (supported there: Fuse, "
                     "Metaspace, Replace of one character, Strip)"));
  }
  stages_.push_back(std::move(stage));
  if (stages_.size() <= kStagesMax) return {};
  return invalid_argument(absl::StrCat(where, ": more than ", kStagesMax, " decoders"));
}

Status Decoder::collect(const bj::value& value, const std::string& where) {
  TROUPE_ASSIGN_OR_RETURN(JsonItem item, json_object(value, where));
  TROUPE_ASSIGN_OR_RETURN(std::string type, component_type(item));
  if (type == "Sequence") {
    TROUPE_ASSIGN_OR_RETURN(const bj::array* list, array_field(item, "decoders"));
    // The JSON reader's depth limit bounds this recursion.
    for (size_t i = 0; i < list->size(); ++i) {
      TROUPE_RETURN_IF_ERROR(collect((*list)[i], absl::StrCat(where, ".decoders[", i, "]")));
    }
    return {};
  }
  TROUPE_ASSIGN_OR_RETURN(DecodeStage stage, load_stage(item, type));
  return add(std::move(stage), where);
}

StatusOr<Decoder> Decoder::load(const bj::value& value, const std::string& where) {
  Decoder decoder;
  if (value.is_null()) {
    DecodeStage stage;
    stage.kind = Kind::kJoinBySpaces;
    TROUPE_RETURN_IF_ERROR(decoder.add(std::move(stage), where));
  } else {
    TROUPE_RETURN_IF_ERROR(decoder.collect(value, where));
  }
  return decoder;
}

std::string Decoder::token_bytes(std::string_view token) const {
  std::string bytes(token);
  Stream one(this, /*at_start=*/false);
  for (const DecodeStage& stage : stages_) {
    if (stage.kind == Kind::kByteLevel) return bytes_of_token(bytes);
    if (stage.kind == Kind::kByteFallback && byte_of_token(bytes) >= 0) {
      return std::string(1, static_cast<char>(byte_of_token(bytes)));
    }
    if (stage.kind == Kind::kMetaspace) bytes = replace_character(bytes, stage.content, " ");
    if (stage.kind == Kind::kReplace) bytes = one.replace(stage, std::move(bytes));
    if (stage.kind == Kind::kStrip && !stage.joined) bytes = strip_token(stage, bytes);
  }
  return bytes;
}

Decoder::Stream::Stream(const Decoder* decoder, bool at_start)
    : decoder_(decoder), states_(decoder->stages_.size()) {
  for (size_t i = 0; i < states_.size(); ++i) {
    states_[i].at_start = at_start;
    states_[i].to_strip = at_start ? decoder_->stages_[i].start : 0;
  }
}

void Decoder::Stream::push(std::string_view token, std::string& out) {
  feed(0, std::string(token), out);
}

std::string Decoder::Stream::replace(const DecodeStage& stage, std::string token) {
  if (const std::string* literal = stage.pattern->literal(); literal != nullptr) {
    return replace_character(token, *literal, stage.content);
  }
  if (matcher_ == nullptr) matcher_ = std::make_unique<Regex::Matcher>();
  std::string replaced;
  // If a regex gives up the token stays as it is: a computed answer is not discarded.
  return stage.pattern->replace_all(token, stage.content, *matcher_, replaced).ok() ? replaced : token;
}

void Decoder::Stream::feed(size_t index, std::string token, std::string& out) {
  if (index == states_.size()) {
    out += token;
    return;
  }
  const DecodeStage& stage = decoder_->stages_[index];
  State& state = states_[index];
  switch (stage.kind) {
    case Kind::kFuse:
      return feed(index + 1, std::move(token), out);
    case Kind::kJoinBySpaces: {
      bool first = std::exchange(state.at_start, false);
      return feed(index + 1, first ? std::move(token) : " " + token, out);
    }
    case Kind::kMetaspace: {
      // A joined text is the first token from beginning to end.
      bool first = stage.joined ? state.at_start : std::exchange(state.at_start, false);
      return feed(index + 1, replace_character(token, stage.content, first && stage.drops_first ? "" : " "),
                  out);
    }
    case Kind::kReplace:
      return feed(index + 1, replace(stage, std::move(token)), out);
    case Kind::kStrip:
      return feed_strip(index, std::move(token), out);
    case Kind::kByteFallback:
      return feed_byte_fallback(index, std::move(token), out);
    case Kind::kByteLevel: {
      std::string text;
      state.held += bytes_of_token(token);
      take_valid_utf8(state.held, text, false);
      return feed(index + 1, std::move(text), out);
    }
  }
}

void Decoder::Stream::feed_byte_fallback(size_t index, std::string token, std::string& out) {
  int byte = byte_of_token(token);
  if (byte >= 0) {
    states_[index].held.push_back(static_cast<char>(byte));
    return;
  }
  release_bytes(index, out);
  feed(index + 1, std::move(token), out);
}

// Ends a run of bytes: it becomes a text, or a U+FFFD for each byte.
void Decoder::Stream::release_bytes(size_t index, std::string& out) {
  std::string bytes = std::exchange(states_[index].held, {});
  if (bytes.empty()) return;
  if (is_valid_utf8(bytes)) return feed(index + 1, std::move(bytes), out);
  for (size_t i = 0; i < bytes.size(); ++i) feed(index + 1, std::string(kReplacement), out);
}

void Decoder::Stream::feed_strip(size_t index, std::string token, std::string& out) {
  const DecodeStage& stage = decoder_->stages_[index];
  if (!stage.joined) return feed(index + 1, strip_token(stage, token), out);
  State& state = states_[index];
  size_t first = count_leading(token, stage.content, state.to_strip);
  token.erase(0, first * stage.content.size());
  // The first different character ends the beginning.
  state.to_strip = token.empty() ? state.to_strip - first : 0;
  const size_t unit = stage.content.size(), held_max = stage.stop * unit;
  const size_t last = count_trailing(token, stage.content, token.size() / unit) * unit;
  std::string text;
  if (last == token.size()) {  // nothing but the character: of a run the beginning goes on
    state.held += token;
    const size_t over = state.held.size() - std::min(state.held.size(), held_max);
    text = state.held.substr(0, over);
    state.held.resize(state.held.size() - over);
  } else {
    text = std::exchange(state.held, token.substr(token.size() - std::min(last, held_max))) + token;
    text.resize(text.size() - state.held.size());
  }
  feed(index + 1, std::move(text), out);
}

bool Decoder::Stream::holds_back() const {
  return std::any_of(states_.begin(), states_.end(), [](const State& state) { return !state.held.empty(); });
}

void Decoder::Stream::finish(bool keeps_cut_character, std::string& out) {
  for (size_t i = 0; i < states_.size(); ++i) {
    Kind kind = decoder_->stages_[i].kind;
    const bool holds_bytes = kind == Kind::kByteFallback || kind == Kind::kByteLevel;
    if (holds_bytes && !keeps_cut_character) states_[i].held = without_cut_character(states_[i].held);
    if (kind == Kind::kByteFallback) release_bytes(i, out);
    if (kind != Kind::kByteLevel) continue;
    std::string text;
    take_valid_utf8(states_[i].held, text, true);
    feed(i + 1, std::move(text), out);
  }
}

}  // namespace troupe
