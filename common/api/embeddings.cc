#include "common/api/embeddings.h"

#include <bit>
#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/api/read.h"
#include "common/core/base64.h"

namespace troupe {

namespace {

constexpr std::string_view kInputRule =
    "a text or a list of token ids, not empty, or a list of at most 2048 of one of these";

Fault read_one_input(std::string_view param, dom::element value, GenerateRequest::Prompt& input) {
  if (is_text(value)) {
    const std::string_view text = value.get_string().value_unsafe();
    if (text.empty()) return expected(param, kInputRule, value);
    input = std::string(text);
    return std::nullopt;
  }
  if (!value.is_array() || value.get_array().value_unsafe().size() == 0)
    return expected(param, kInputRule, value);
  std::vector<int32_t> ids;
  if (auto fault = read_id_list(param, value.get_array().value_unsafe(), ids)) return fault;
  input = std::move(ids);
  return std::nullopt;
}

Fault read_inputs(std::string_view param, dom::element value, std::vector<GenerateRequest::Prompt>& inputs) {
  inputs.clear();
  dom::element first;
  const bool is_list = value.is_array() && !value.get_array().value_unsafe().at(0).get(first);
  if (!is_list || (!is_text(first) && !first.is_array()))
    return read_one_input(param, value, inputs.emplace_back());
  const dom::array items = value.get_array().value_unsafe();
  if (items.size() > kEmbeddingInputsMax)
    return ApiError::bad_field(param, absl::StrCat("'input' must be a list of at most ", kEmbeddingInputsMax,
                                                   " inputs, not ", items.size(), "."));
  for (const dom::element item : items) {
    const std::string name = absl::StrCat("input[", inputs.size(), "]");
    if (auto fault = read_one_input(name, item, inputs.emplace_back())) return fault;
  }
  return std::nullopt;
}

// Reads one of two names; `is_second`: which.
Fault read_choice(std::string_view param, dom::element value, std::string_view first, std::string_view second,
                  bool& is_second) {
  const std::string_view name = value.is_string() ? value.get_string().value_unsafe() : std::string_view();
  if (name != first && name != second)
    return expected(param, absl::StrCat("\"", to_absl(first), "\" or \"", to_absl(second), "\""), value);
  is_second = name == second;
  return std::nullopt;
}

Fault read_pooling(std::string_view param, dom::element value, Pooling& pooling) {
  bool is_mean = false;
  auto fault = read_choice(param, value, "last", "mean", is_mean);
  if (!fault) pooling = is_mean ? Pooling::kMean : Pooling::kLast;
  return fault;
}

Fault read_truncated(std::string_view param, dom::element value, std::optional<int64_t>& out) {
  if (auto fault = read_optional_integer(param, value, -1, out)) return fault;
  return out == 0 ? Fault(expected(param, "a number of tokens, at least 1, or -1", value)) : std::nullopt;
}

Fault read_embeddings_field(const ApiLimits& limits, std::string_view name, dom::element value,
                            EmbeddingsRequest& request, GenerateRequest& shared) {
  if (name == "input") return read_inputs(name, value, request.inputs);
  if (name == "pooling") return read_pooling(name, value, request.pooling);
  if (name == "normalize") return read_bool(name, value, request.normalize);
  if (name == "encoding_format") return read_choice(name, value, "float", "base64", request.base64);
  if (name == "dimensions") return read_optional_integer(name, value, 1, request.dimensions);
  if (name == "truncate_prompt_tokens") return read_truncated(name, value, request.truncate_prompt_tokens);
  if (name == "add_special_tokens") return read_bool(name, value, request.add_special_tokens);
  if (name == "messages")
    return ApiError::unsupported(name, "'messages' is not supported: send a text or token ids in 'input'.");
  if (name == "model" || name == "cache_salt") return read_request_field(limits, name, value, shared);
  return std::nullopt;
}

void append_floats(std::string& out, std::span<const float> vector) {
  char separator = '[';
  for (const float value : vector) {
    char digits[32];
    const auto end = std::to_chars(std::begin(digits), std::end(digits), value).ptr;
    out += separator;
    out.append(digits, end);
    separator = ',';
  }
  out += ']';
}

void append_base64(std::string& out, std::span<const float> vector) {
  std::string bytes;
  bytes.reserve(vector.size() * sizeof(float));
  for (const float value : vector) {
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift & 0xFF);
  }
  absl::StrAppend(&out, "\"", base64(bytes), "\"");
}

}  // namespace

std::string_view pooling_name(Pooling pooling) {
  return pooling == Pooling::kMean ? "mean" : "last";
}

ApiResult<EmbeddingsRequest> parse_embeddings_request(std::string_view body, const ApiLimits& limits) {
  StrictJson json;
  auto fields = parse_body(json, body, limits);
  if (!fields.ok()) return fields.error();
  EmbeddingsRequest request;
  GenerateRequest shared;
  shared.kind = GenerateRequest::Kind::kCompletion;
  for (const auto field : *fields) {
    if (field.value.is_null()) continue;
    if (auto fault = read_embeddings_field(limits, field.key, field.value, request, shared))
      return *std::move(fault);
  }
  if (request.inputs.empty()) return missing("input", kInputRule);
  request.model = std::move(shared.model);
  request.cache_salt = std::move(shared.cache_salt);
  return request;
}

std::string embeddings_json(const EmbeddingsAnswer& answer) {
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < answer.vectors.size(); ++i) {
    absl::StrAppend(&out, i > 0 ? "," : "", R"({"object":"embedding","index":)", i, R"(,"embedding":)");
    if (answer.base64) {
      append_base64(out, answer.vectors[i]);
    } else {
      append_floats(out, answer.vectors[i]);
    }
    out += '}';
  }
  out += R"(],"model":)";
  append_json_string(out, answer.model);
  absl::StrAppend(&out, R"(,"pooling":")", to_absl(pooling_name(answer.pooling)),
                  R"(","usage":{"prompt_tokens":)", answer.prompt_tokens, R"(,"total_tokens":)",
                  answer.prompt_tokens, R"(,"prompt_tokens_details":{"cached_tokens":)", answer.cached_tokens,
                  "}}}");
  return out;
}

}  // namespace troupe
