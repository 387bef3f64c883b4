#include "common/api/read_sampler_lists.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"

namespace troupe {

namespace {

constexpr size_t kBreakersMax = 128;
constexpr size_t kBreakerBytesMax = 256;
constexpr size_t kBannedMax = 4096;
constexpr size_t kBadWordsMax = 1024;
constexpr size_t kBadWordsBytesMax = 16 * 1024;
constexpr size_t kOrderMax = 64;
// Bytes of such lists in one text.
constexpr size_t kOrderBytesMax = 1024, kBannedBytesMax = 64 * 1024;

using Step = Sampler;

// Names of text-generation-webui's and llama.cpp's; `none`: a sampler whose place is fixed (DRY is first), or
// that is not there and whose own field says so where it is switched on.
struct StepName {
  std::string_view name;
  std::optional<Step> step;
};
constexpr StepName kStepNames[] = {
    {"adaptive_p", std::nullopt},
    {"dry", std::nullopt},
    {"dynamic_temperature", Step::kTemperature},
    {"encoder_repetition_penalty", std::nullopt},
    {"epsilon_cutoff", Step::kEpsilon},
    {"eta_cutoff", Step::kEta},
    {"frequency_penalty", Step::kPenalties},
    {"infill", std::nullopt},
    {"min_p", Step::kMinP},
    {"mirostat", std::nullopt},
    {"no_repeat_ngram", std::nullopt},
    {"no_repeat_ngram_size", std::nullopt},
    {"penalties", Step::kPenalties},
    {"presence_penalty", Step::kPenalties},
    {"quadratic", Step::kSmoothing},
    {"quadratic_sampling", Step::kSmoothing},
    {"repetition_penalty", Step::kPenalties},
    {"temperature", Step::kTemperature},
    {"tfs", Step::kTfs},
    {"tfs_z", Step::kTfs},
    {"top_a", Step::kTopA},
    {"top_k", Step::kTopK},
    {"top_n_sigma", std::nullopt},
    {"top_nsigma", std::nullopt},
    {"top_p", Step::kTopP},
    {"typ_p", Step::kTypicalP},
    {"typical", Step::kTypicalP},
    {"typical_p", Step::kTypicalP},
    {"xtc", Step::kXtc},
};

const StepName* find_step(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kStepNames), std::end(kStepNames),
                                         [&](const StepName& row) { return row.name == name; });
  return found == std::end(kStepNames) ? nullptr : found;
}

// llama.cpp's letters.
std::string_view name_of_letter(char letter) {
  constexpr std::pair<char, std::string_view> kLetters[] = {
      {'d', "dry"},   {'e', "penalties"}, {'i', "infill"},      {'k', "top_k"},
      {'m', "min_p"}, {'p', "top_p"},     {'s', "top_n_sigma"}, {'t', "temperature"},
      {'x', "xtc"},   {'y', "typ_p"},     {'f', "tfs_z"}};
  for (const auto& [of, name] : kLetters) {
    if (of == letter) return name;
  }
  return {};
}

// Steps in the order of a request, each once.
class Order {
 public:
  void add(Step step) {
    if (std::find(steps_.begin(), steps_.end(), step) == steps_.end()) steps_.push_back(step);
  }
  SamplerOrder finish() {
    // Smoothing is part of the temperature unless it is named, as koboldcpp's.
    const auto heat = std::find(steps_.begin(), steps_.end(), Step::kTemperature);
    const bool is_named = std::find(steps_.begin(), steps_.end(), Step::kSmoothing) != steps_.end();
    if (heat != steps_.end() && !is_named) steps_.insert(heat + 1, Step::kSmoothing);
    // XTC comes last where it is not named, as koboldcpp's; penalties first.
    const bool has_penalties = std::find(steps_.begin(), steps_.end(), Step::kPenalties) != steps_.end();
    if (!has_penalties) steps_.insert(steps_.begin(), Step::kPenalties);
    for (const Step step : kDefaultSamplerOrder) add(step);
    SamplerOrder order;
    std::copy(steps_.begin(), steps_.end(), order.begin());
    return order;
  }

 private:
  std::vector<Step> steps_;
};

// koboldcpp's numbers. Its 2 is top_p with min_p behind it.
Fault read_numbers(std::string_view param, dom::array items, Order& order) {
  constexpr Step kSteps[] = {Step::kTopK,     Step::kTopA,        Step::kTopP,     Step::kTfs,
                             Step::kTypicalP, Step::kTemperature, Step::kPenalties};
  size_t index = 0;
  for (const dom::element item : items) {
    const std::optional<int64_t> number = integer_of(item);
    if (!number || *number < 0 || *number >= static_cast<int64_t>(std::size(kSteps)))
      return expected(absl::StrCat(to_absl(param), "[", index, "]"), "an integer from 0 to 6", item);
    const Step step = kSteps[static_cast<size_t>(*number)];
    order.add(step);
    if (step == Step::kTopP) order.add(Step::kMinP);
    ++index;
  }
  return std::nullopt;
}

Fault add_name(const std::string& param, std::string_view name, Order& order) {
  if (name == "top_p_top_k") {  // Aphrodite's
    order.add(Step::kTopP);
    order.add(Step::kTopK);
    return std::nullopt;
  }
  const StepName* const found = find_step(name);
  if (found == nullptr) {
    return ApiError::bad_field(
        param, absl::StrCat("'", param, "' must be a sampler's name, such as \"top_k\", not \"",
                            to_absl(clip_text(name)), "\"."));
  }
  if (found->step) order.add(*found->step);
  return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Pieces between commas or line breaks; empty ones are none.
std::vector<std::string_view> pieces_of(std::string_view text) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(",\n"), text.size());
    const std::string_view piece = trimmed(text.substr(0, end));
    if (!piece.empty()) pieces.push_back(piece);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return pieces;
}

// Names in one text: a letter each (`samplers`: "edkypmxt"), or with separators.
Fault read_names_text(std::string_view param, std::string_view text, Order& order) {
  const bool has_letters = param == "samplers" && find_step(trimmed(text)) == nullptr &&
                           text.find_first_of(",\n_") == std::string_view::npos;
  const std::string path(param);
  if (!has_letters) {
    for (const std::string_view name : pieces_of(text)) {
      if (auto fault = add_name(path, name, order)) return fault;
    }
    return std::nullopt;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view name = name_of_letter(text[i]);
    if (auto fault = add_name(path, name.empty() ? text.substr(i, 1) : name, order)) return fault;
  }
  return std::nullopt;
}

Fault read_names(std::string_view param, dom::array items, Order& order) {
  size_t index = 0;
  for (const dom::element item : items) {
    const std::string path = absl::StrCat(to_absl(param), "[", index++, "]");
    if (!is_text(item)) return expected(path, "a sampler's name", item);
    if (auto fault = add_name(path, item.get_string().value_unsafe(), order)) return fault;
  }
  return std::nullopt;
}

std::optional<int32_t> id_of(std::string_view digits) {
  int32_t id = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  const bool is_id = error == std::errc() && end == digits.data() + digits.size() && id >= -1;
  return is_id ? std::optional(id) : std::nullopt;
}

}  // namespace

Fault read_breakers(std::string_view param, dom::element value, std::vector<std::string>& out) {
  const std::string rule = absl::StrCat("a list of at most ", kBreakersMax, " texts of 1 to ",
                                        kBreakerBytesMax, " bytes, or such a list as a JSON text");
  dom::parser parser;  // of a list in a text, which `value` refers to from then on
  if (is_text(value)) {
    std::string text(trimmed(value.get_string().value_unsafe()));
    if (text.empty()) return std::nullopt;
    if (text.front() != '[') text = absl::StrCat("[", text, "]");
    dom::element inner;
    if (parser.parse(text).get(inner)) return expected(param, rule, value);
    if (!inner.is_array()) return expected(param, rule, value);
    value = inner;
  }
  if (!value.is_array() || value.get_array().value_unsafe().size() > kBreakersMax)
    return expected(param, rule, value);
  const dom::array items = value.get_array().value_unsafe();
  for (const dom::element item : items) {
    const bool is_breaker = item.is_string() && !item.get_string().value_unsafe().empty() &&
                            item.get_string().value_unsafe().size() <= kBreakerBytesMax;
    if (!is_breaker)
      return expected(absl::StrCat(to_absl(param), "[", out.size(), "]"), "a text of 1 to 256 bytes", item);
    out.emplace_back(item.get_string().value_unsafe());
  }
  return std::nullopt;
}

Fault read_banned_tokens(std::string_view param, dom::element value, std::vector<int32_t>& out) {
  const std::string rule = absl::StrCat("a list of at most ", kBannedMax, " token ids");
  if (is_text(value)) {
    const std::string_view text = value.get_string().value_unsafe();
    if (text.size() > kBannedBytesMax) return expected(param, rule, value);
    for (const std::string_view piece : pieces_of(text)) {
      const std::optional<int32_t> id = id_of(piece);
      if (!id || out.size() == kBannedMax)
        return expected(param, "token ids with commas between them", value);
      if (*id >= 0) out.push_back(*id);
    }
    return std::nullopt;
  }
  if (!value.is_array() || value.get_array().value_unsafe().size() > kBannedMax)
    return expected(param, rule, value);
  size_t index = 0;
  const dom::array items = value.get_array().value_unsafe();
  for (const dom::element item : items) {
    const std::string path = absl::StrCat(to_absl(param), "[", index++, "]");
    std::optional<int32_t> id;
    if (is_text(item)) {
      id = id_of(trimmed(item.get_string().value_unsafe()));
    } else if (const auto number = integer_of(item); number && *number >= -1 && *number <= INT32_MAX) {
      id = static_cast<int32_t>(*number);
    }
    if (!id) return expected(path, "a token id (words are bad_words)", item);
    if (*id >= 0) out.push_back(*id);
  }
  return std::nullopt;
}

Fault read_bad_words(std::string_view param, dom::element value, std::vector<std::string>& out) {
  size_t bytes = 0;
  const auto add = [&](dom::element item) {
    if (!is_text(item)) return false;
    const std::string_view word = item.get_string().value_unsafe();
    bytes += word.size();
    if (!word.empty()) out.emplace_back(word);
    return bytes <= kBadWordsBytesMax && out.size() <= kBadWordsMax;
  };
  const std::string rule =
      absl::StrCat("a list of at most ", kBadWordsMax, " texts, ", kBadWordsBytesMax, " bytes in all");
  if (!value.is_array()) return add(value) ? std::nullopt : Fault(expected(param, rule, value));
  size_t index = 0;
  const dom::array items = value.get_array().value_unsafe();
  for (const dom::element item : items) {
    if (!add(item))
      return is_text(item) ? expected(param, rule, value)
                           : expected(absl::StrCat(to_absl(param), "[", index, "]"), "a text", item);
    ++index;
  }
  return std::nullopt;
}

Fault read_sampler_order(std::string_view param, dom::element value, SamplerFields& out) {
  Order order;
  Fault fault;
  if (is_text(value) && value.get_string().value_unsafe().size() <= kOrderBytesMax) {
    fault = read_names_text(param, value.get_string().value_unsafe(), order);
  } else if (!value.is_array() || value.get_array().value_unsafe().size() > kOrderMax) {
    fault = expected(
        param, param == "sampler_order" ? "a list of integers from 0 to 6" : "a list of samplers' names",
        value);
  } else if (const dom::array items = value.get_array().value_unsafe(); items.size() == 0) {
    return std::nullopt;
  } else {
    fault = param == "sampler_order" ? read_numbers(param, items, order) : read_names(param, items, order);
  }
  if (fault) return fault;
  out.order = order.finish();
  out.has_order = true;
  return std::nullopt;
}

void move_temperature(bool last, SamplerFields& out) {
  if (!last && out.has_order) return;
  out.has_order = true;
  const auto is_heat = [](Step step) { return step == Step::kTemperature || step == Step::kSmoothing; };
  std::vector<Step> heat, others;
  for (const Step step : out.order) (is_heat(step) ? heat : others).push_back(step);
  auto place = others.begin();
  if (last) {
    place = others.back() == Step::kXtc ? others.end() - 1 : others.end();
  } else if (others.front() == Step::kPenalties) {
    ++place;
  }
  others.insert(place, heat.begin(), heat.end());
  std::copy(others.begin(), others.end(), out.order.begin());
}

}  // namespace troupe
