#include "common/api/read.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/json/wide_integers.h"

namespace troupe {

namespace {

void append_double(std::string& out, double number) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, number).ptr;
  const std::string_view digits(text, static_cast<size_t>(end - text));
  out += digits;
  if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
}

std::string describe(dom::element value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  std::string text;
  if (is_text(value)) {
    append_json_string(text, clip_text(value.get_string().value_unsafe()));
  } else {
    append_element_json(text, value);
    text = std::string(clip_text(text));  // (an integer may have any number of digits)
  }
  return text;
}

constexpr size_t kLogitBiasMax = 4096;

// Parses a token id as an object's key: decimal digits only, so that no id has two spellings.
bool parse_id_key(std::string_view key, int32_t& id) {
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  return error == std::errc() && end == key.data() + key.size() && id >= 0 &&
         (key.size() == 1 || key.front() != '0') && key.front() != '-';
}

std::string number_text(double number) {
  return absl::StrCat(number);
}

ApiError too_long(std::string_view param, size_t bytes, size_t bytes_max) {
  return ApiError::bad_field(param, absl::StrCat("'", to_absl(param), "' must be at most ", bytes_max,
                                                 " bytes long, not ", bytes, "."));
}

// `may_be_empty`: strings may, and are left out.
Fault read_strings(std::string_view param, dom::element value, size_t bytes_max, bool may_be_empty,
                   std::vector<std::string>& out) {
  std::vector<std::string> strings;
  const auto is_good = [may_be_empty](dom::element item) {
    return is_text(item) && (may_be_empty || !item.get_string().value_unsafe().empty());
  };
  if (is_good(value)) {
    strings.emplace_back(value.get_string().value_unsafe());
  } else if (value.is_array()) {
    const dom::array items = value.get_array().value_unsafe();
    for (const dom::element item : items) {
      if (!is_good(item)) {
        return expected(absl::StrCat(to_absl(param), "[", strings.size(), "]"),
                        may_be_empty ? "a string" : "a string that is not empty", item);
      }
      strings.emplace_back(item.get_string().value_unsafe());
    }
  } else {
    return expected(
        param, may_be_empty ? "a string or a list of strings" : "a string or a list of strings, none empty",
        value);
  }
  std::erase(strings, "");
  size_t bytes = 0;
  for (const std::string& string : strings) bytes += string.size();
  if (bytes > bytes_max) return too_long(param, bytes, bytes_max);
  out = std::move(strings);
  return std::nullopt;
}

}  // namespace

ApiError expected(std::string_view param, std::string_view what, dom::element got) {
  return ApiError::bad_field(
      param, absl::StrCat("'", to_absl(param), "' must be ", to_absl(what), ", not ", describe(got), "."));
}

ApiError missing(std::string_view param, std::string_view what) {
  return ApiError::bad_field(
      param, absl::StrCat("'", to_absl(param), "' is required and must be ", to_absl(what), "."));
}

std::optional<int64_t> integer_of(dom::element value) {
  if (value.is_int64()) return value.get_int64().value_unsafe();
  if (!value.is_double()) return std::nullopt;
  constexpr double kExact = 9007199254740992.0;  // 2^53: beyond, a double may stand for another integer
  const double number = value.get_double().value_unsafe();
  if (!(std::abs(number) <= kExact) || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

bool is_text(dom::element value) {
  return value.is_string() && wide_integer_of(value.get_string().value_unsafe()).empty();
}

Fault read_integer(std::string_view param, dom::element value, IntegerRange range, int64_t& out) {
  const std::optional<int64_t> number = integer_of(value);
  if (!number || *number < range.min || *number > range.max) {
    std::string what = "an integer";
    const bool has_min = range.min != IntegerRange{}.min, has_max = range.max != IntegerRange{}.max;
    if (has_min && has_max) absl::StrAppend(&what, " from ", range.min, " to ", range.max);
    if (has_min && !has_max) absl::StrAppend(&what, " of at least ", range.min);
    return expected(param, what, value);
  }
  out = *number;
  return std::nullopt;
}

Fault read_number(std::string_view param, dom::element value, NumberRange range, double& out) {
  double number = 0;
  const bool is_number = value.is_number() && !value.get_double().get(number);
  if (!is_number || number < range.min || number > range.max || (range.excludes_min && number == range.min)) {
    return expected(param,
                    absl::StrCat("a number ", range.excludes_min ? "above " : "from ", number_text(range.min),
                                 range.excludes_min ? " and at most " : " to ", number_text(range.max)),
                    value);
  }
  out = number;
  return std::nullopt;
}

Fault read_bool(std::string_view param, dom::element value, bool& out) {
  if (!value.is_bool()) return expected(param, "true or false", value);
  out = value.get_bool().value_unsafe();
  return std::nullopt;
}

Fault read_string(std::string_view param, dom::element value, size_t bytes_max, std::string& out) {
  if (!is_text(value)) return expected(param, "a string", value);
  const std::string_view text = value.get_string().value_unsafe();
  if (text.size() > bytes_max) return too_long(param, text.size(), bytes_max);
  out = text;
  return std::nullopt;
}

Fault check_objects(std::string_view param, std::string_view what, dom::element value) {
  if (!value.is_array()) return expected(param, what, value);
  const dom::array items = value.get_array().value_unsafe();
  size_t index = 0;
  for (const dom::element item : items) {
    if (!item.is_object()) return expected(absl::StrCat(to_absl(param), "[", index, "]"), "an object", item);
    ++index;
  }
  return std::nullopt;
}

bool names_chat(std::string_view field) {
  constexpr std::string_view kFields[] = {"model",
                                          "messages",
                                          "tools",
                                          "documents",
                                          "chat_template_kwargs",
                                          "chat_template",
                                          "reasoning_effort",
                                          "continue_final_message"};
  return std::find(std::begin(kFields), std::end(kFields), field) != std::end(kFields);
}

Fault read_strings(std::string_view param, dom::element value, size_t bytes_max,
                   std::vector<std::string>& out) {
  return read_strings(param, value, bytes_max, /*may_be_empty=*/false, out);
}

Fault read_lines(std::string_view param, dom::element value, size_t bytes_max,
                 std::vector<std::string>& out) {
  return read_strings(param, value, bytes_max, /*may_be_empty=*/true, out);
}

Fault read_seed(std::string_view param, dom::element value, std::optional<uint64_t>& out) {
  if (const std::optional<int64_t> number = integer_of(value)) {
    out = static_cast<uint64_t>(*number);
  } else if (value.is_uint64()) {
    out = value.get_uint64().value_unsafe();
  } else {
    return expected(param, "an integer of at most 64 bits", value);
  }
  return std::nullopt;
}

Fault read_token_id(std::string_view param, dom::element value, int32_t& out) {
  int64_t number = 0;
  if (auto fault = read_integer(param, value, {0, std::numeric_limits<int32_t>::max()}, number)) return fault;
  out = static_cast<int32_t>(number);
  return std::nullopt;
}

namespace {

// A pair of llama.cpp's form: [50256, -1.5], or with false for a token that never comes.
Fault read_bias_pair(const std::string& path, dom::element item, std::pair<int32_t, float>& out) {
  if (!item.is_array() || item.get_array().value_unsafe().size() != 2)
    return expected(path, "a pair of a token id and a bias", item);
  const dom::array pair = item.get_array().value_unsafe();
  const dom::element bias = pair.at(1).value_unsafe();
  if (auto fault = read_token_id(absl::StrCat(path, "[0]"), pair.at(0).value_unsafe(), out.first))
    return fault;
  double number = -std::numeric_limits<double>::infinity();
  if (!bias.is_bool() || bias.get_bool().value_unsafe()) {
    if (auto fault = read_number(absl::StrCat(path, "[1]"), bias, {-100, 100}, number)) return fault;
  }
  out.second = static_cast<float>(number);
  return std::nullopt;
}

}  // namespace

Fault read_logit_bias(std::string_view param, dom::element value,
                      std::vector<std::pair<int32_t, float>>& out) {
  const std::string rule =
      absl::StrCat("an object of at most ", kLogitBiasMax, " token ids, each with a bias from -100 to 100");
  std::vector<std::pair<int32_t, float>> biases;
  if (value.is_array()) {  // PHP writes an empty object so
    const dom::array items = value.get_array().value_unsafe();
    if (items.size() > kLogitBiasMax) return expected(param, rule, value);
    for (const dom::element item : items) {
      const std::string path = absl::StrCat(to_absl(param), "[", biases.size(), "]");
      if (auto fault = read_bias_pair(path, item, biases.emplace_back())) return fault;
    }
    // The last of an id's several biases counts.
    std::stable_sort(biases.begin(), biases.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& bias : biases) {
      if (!out.empty() && out.back().first == bias.first) out.pop_back();
      out.push_back(bias);
    }
    return std::nullopt;
  }
  if (!value.is_object()) return expected(param, rule, value);
  const dom::object fields = value.get_object().value_unsafe();
  for (const auto field : fields) {
    const std::string path = absl::StrCat(to_absl(param), ".", to_absl(clip_text(field.key)));
    if (biases.size() == kLogitBiasMax) return expected(param, rule, value);
    int32_t id = 0;
    if (!parse_id_key(field.key, id)) {
      return ApiError::bad_field(
          path, absl::StrCat("'", path, "' must be named by a token id, such as \"50256\"."));
    }
    double bias = 0;
    if (auto fault = read_number(path, field.value, {-100, 100}, bias)) return fault;
    biases.emplace_back(id, static_cast<float>(bias));
  }
  out = std::move(biases);
  return std::nullopt;
}

Fault read_id_list(std::string_view param, dom::array items, std::vector<int32_t>& ids) {
  // size() saturates; the reservation is bounded by the body's size.
  ids.reserve(items.size());
  for (const dom::element item : items) {
    int32_t id = 0;
    if (read_token_id("", item, id)) {  // the path is only made for an error
      return read_token_id(absl::StrCat(to_absl(param), "[", ids.size(), "]"), item, id);
    }
    ids.push_back(id);
  }
  return std::nullopt;
}

void append_element_json(std::string& out, dom::element value) {
  switch (value.type()) {
    case dom::element_type::OBJECT: {
      const dom::object fields = value.get_object().value_unsafe();
      char separator = '{';
      for (const auto field : fields) {
        out += separator;
        separator = ',';
        append_json_string(out, field.key);
        out += ':';
        append_element_json(out, field.value);
      }
      out += separator == '{' ? "{}" : "}";
      return;
    }
    case dom::element_type::ARRAY: {
      const dom::array items = value.get_array().value_unsafe();
      char separator = '[';
      for (const dom::element item : items) {
        out += separator;
        separator = ',';
        append_element_json(out, item);
      }
      out += separator == '[' ? "[]" : "]";
      return;
    }
    case dom::element_type::STRING:
      if (const auto digits = wide_integer_of(value.get_string().value_unsafe()); !digits.empty())
        out += digits;
      else
        append_json_string(out, value.get_string().value_unsafe());
      return;
    case dom::element_type::INT64:
      absl::StrAppend(&out, value.get_int64().value_unsafe());
      return;
    case dom::element_type::UINT64:
      absl::StrAppend(&out, value.get_uint64().value_unsafe());
      return;
    case dom::element_type::DOUBLE:
      append_double(out, value.get_double().value_unsafe());
      return;
    case dom::element_type::BOOL:
      out += value.get_bool().value_unsafe() ? "true" : "false";
      return;
    case dom::element_type::NULL_VALUE:
      out += "null";
      return;
  }
}

ApiResult<dom::object> parse_body(StrictJson& json, JsonText body, const ApiLimits& limits) {
  const size_t bytes = body.text().size();
  if (bytes > limits.body_bytes_max) {
    return ApiError::too_large(
        absl::StrCat("The body has ", bytes, " bytes; at most ", limits.body_bytes_max, " are allowed."));
  }
  auto root = json.parse(body, limits.body_bytes_max);
  if (absl::IsInvalidArgument(root.status())) {
    // Tools and their calls may hold integers of any size.
    const std::string spelled = with_wide_integers(body.text(), WideIntegers::kAsMarkedText);
    if (!spelled.empty()) root = json.parse(spelled, spelled.size());
  }
  if (absl::IsResourceExhausted(root.status())) return ApiError::unavailable(to_std(root.status().message()));
  if (!root.ok()) return ApiError::bad_field("", to_std(root.status().message()));
  if (!root->is_object()) {
    return ApiError::bad_field("", absl::StrCat("The body must be a JSON object, not ",
                                                root->is_array() ? "an array." : "a bare value."));
  }
  return root->get_object().value_unsafe();
}

Fault read_persona(std::string_view param, dom::element value, bool is_taken, GenerateRequest& request) {
  if (request.kind != GenerateRequest::Kind::kChat || !is_taken)
    return ApiError::unsupported(param,
                                 "'persona' is of chats at a gateway, which puts it around the messages.");
  if (!value.is_string() && !value.is_object())
    return expected(param, "a persona's name, or an object", value);
  append_element_json(request.persona_json, value);
  return std::nullopt;
}

Fault read_optional_number(std::string_view name, dom::element value, NumberRange range,
                           std::optional<double>& out) {
  double number = 0;
  if (auto fault = read_number(name, value, range, number)) return fault;
  out = number;
  return std::nullopt;
}

Fault read_optional_integer(std::string_view name, dom::element value, int64_t min,
                            std::optional<int64_t>& out) {
  int64_t number = 0;
  if (auto fault = read_integer(name, value, {.min = min}, number)) return fault;
  out = number;
  return std::nullopt;
}

}  // namespace troupe
