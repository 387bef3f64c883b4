// Messages between servers: GET /v1/models (ours or vLLM's), GET /v1/load, both ways, and an answer's usage.

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/api/cache_report.h"
#include "common/api/read.h"

namespace troupe {

namespace {

constexpr size_t kPeerBytesMax = 4u << 20;
constexpr size_t kModelsMax = 4096;
constexpr size_t kNameBytesMax = 1024;
constexpr size_t kSetsMax = 65'536;

// A report may have any number: bounded, sums of counts and blocks * block_size stay within 64 bits.
constexpr int64_t kReportCountMax = 100'000'000'000'000;
constexpr int64_t kBlockTokensMax = 65'536;

// The integers of a load report, one row each for reader and writer.
struct LoadRow {
  std::string_view name;
  int64_t LoadReport::*member;
};
constexpr LoadRow kLoadRows[] = {
    {"running", &LoadReport::running},
    {"waiting", &LoadReport::waiting},
    {"pending_prefill_tokens", &LoadReport::pending_prefill_tokens},
    {"work_tokens_total", &LoadReport::work_tokens_total},
    {"kv_blocks_total", &LoadReport::kv_blocks_total},
    {"kv_blocks_free", &LoadReport::kv_blocks_free},
    {"kv_blocks_pinned", &LoadReport::kv_blocks_pinned},
    {"block_size", &LoadReport::block_size},
    {"max_num_seqs", &LoadReport::max_num_seqs},
};

ApiResult<dom::object> parse_object(StrictJson& json, std::string_view body) {
  const auto root = json.parse(body, kPeerBytesMax);
  if (!root.ok()) return ApiError::bad_field("", to_std(root.status().message()));
  if (!root->is_object()) return ApiError::bad_field("", "The answer must be a JSON object.");
  return dom::object(root->get_object().value_unsafe());
}

std::optional<int64_t> count_at(dom::object fields, std::string_view name) {
  int64_t count = 0;
  if (fields.at_key(name).get(count) || count < 0) return std::nullopt;
  return count;
}

// A model's context as servers that are not vLLM call it; 0: it is not there.
int64_t context_of_foreign(dom::object fields) {
  dom::object meta;  // llama.cpp's
  if (!fields.at_key("meta").get(meta)) {
    // Not n_ctx_train: the server may have been started with less, and an unknown context is better than a
    // wrong one.
    if (const auto tokens = count_at(meta, "n_ctx"); tokens && *tokens > 0) return *tokens;
  }
  for (const char* name : {"context_length", "context_window", "max_context_length"})
    if (const auto tokens = count_at(fields, name); tokens && *tokens > 0) return *tokens;
  return 0;
}

// A count, or its decimal digits in a string; 0: neither.
int64_t count_in_any_form(dom::object fields, std::string_view name) {
  std::string_view text;
  if (fields.at_key(name).get(text)) return count_at(fields, name).value_or(0);
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  return error == std::errc() && end == text.data() + text.size() ? std::max<int64_t>(count, 0) : 0;
}

// An entry of another server's list; nullopt: it names no model. What else is odd in it is left out: a list
// has many entries, and the others are not to blame.
std::optional<ModelCard> model_card_of(dom::element value) {
  dom::object fields;
  std::string_view id, owner;
  if (value.get(fields) || fields.at_key("id").get(id)) return std::nullopt;
  if (id.empty() || id.size() > kNameBytesMax) return std::nullopt;
  ModelCard card;
  card.id = id;
  card.owned_by.clear();
  if (!fields.at_key("owned_by").get(owner) && owner.size() <= kNameBytesMax) card.owned_by = owner;
  if (fields.at_key("created").get(card.created_s)) card.created_s = 0;
  card.max_model_len = count_in_any_form(fields, "max_model_len");
  if (card.max_model_len == 0) card.max_model_len = context_of_foreign(fields);
  return card;
}

Fault read_set_work(const std::string& path, dom::element value, LoadReport::SetWork& work) {
  if (!value.is_object()) return expected(path, "an object with a set", value);
  std::string name;
  for (const auto field : dom::object(value.get_object().value_unsafe())) {
    Fault fault;
    if (field.key == "set") fault = read_string(path + ".set", field.value, kNameBytesMax, name);
    if (field.key == "work_tokens_total") {
      fault = read_integer(path + ".work_tokens_total", field.value, {.min = 0}, work.work_tokens_total);
    }
    if (field.key == "prefix_tokens")
      fault = read_integer(path + ".prefix_tokens", field.value, {.min = 0}, work.prefix_tokens);
    if (fault) return fault;
  }
  const auto set = Hash128::from_hex(name);
  if (!set) return missing(path + ".set", "32 hex digits");
  work.set = *set;
  return std::nullopt;
}

Fault read_set_works(dom::element value, std::vector<LoadReport::SetWork>& sets) {
  if (!value.is_array() || value.get_array().value_unsafe().size() > kSetsMax) {
    return expected("sets", absl::StrCat("an array of at most ", kSetsMax, " sets"), value);
  }
  for (const dom::element item : dom::array(value.get_array().value_unsafe())) {
    LoadReport::SetWork work;
    if (auto fault = read_set_work(absl::StrCat("sets[", sets.size(), "]"), item, work)) return fault;
    sets.push_back(work);
  }
  return std::nullopt;
}

Fault read_load_field(std::string_view name, dom::element value, LoadReport& report) {
  if (name == "epoch") return read_string(name, value, kNameBytesMax, report.epoch);
  if (name == "ready") return read_bool(name, value, report.ready);
  if (name == "sets") return read_set_works(value, report.sets);
  for (const LoadRow& row : kLoadRows) {
    if (row.name != name) continue;
    auto fault = read_integer(name, value, {.min = 0}, report.*row.member);
    report.*row.member = std::min(report.*row.member, kReportCountMax);
    report.block_size = std::min(report.block_size, kBlockTokensMax);
    return fault;
  }
  return std::nullopt;
}

}  // namespace

std::string model_json(const ModelCard& card) {
  std::string out = "{\"id\":";
  append_json_string(out, card.id);
  absl::StrAppend(&out, ",\"object\":\"model\",\"created\":", card.created_s, ",\"owned_by\":");
  append_json_string(out, card.owned_by);
  if (card.max_model_len > 0) absl::StrAppend(&out, ",\"max_model_len\":", card.max_model_len);
  out += '}';
  return out;
}

std::string models_json(const std::vector<ModelCard>& models) {
  std::string out = "{\"object\":\"list\",\"data\":[";
  for (const ModelCard& card : models) {
    if (&card != models.data()) out += ',';
    out += model_json(card);
  }
  out += "]}";
  return out;
}

std::string model_of_path(std::string_view path) {
  constexpr std::string_view kModel = "/v1/models/";
  std::string id;
  if (!path.starts_with(kModel)) return id;
  path.remove_prefix(kModel.size());
  for (size_t i = 0; i < path.size(); ++i) {
    uint8_t byte = 0;
    const bool coded = path[i] == '%' && i + 2 < path.size() &&
                       std::from_chars(&path[i + 1], &path[i + 1] + 2, byte, 16).ptr == &path[i + 1] + 2;
    id += coded ? static_cast<char>(byte) : path[i];
    if (coded) i += 2;
  }
  return is_valid_utf8(id) ? id : std::string(path);  // an error names it
}

ApiResult<std::vector<ModelCard>> parse_models(std::string_view body) {
  StrictJson json;
  auto root = parse_object(json, body);
  if (!root.ok()) return root.error();
  dom::element data;
  if (root->at_key("data").get(data)) return missing("data", "an array of models");
  if (!data.is_array() || data.get_array().value_unsafe().size() > kModelsMax) {
    return expected("data", absl::StrCat("an array of at most ", kModelsMax, " models"), data);
  }
  const dom::array items = data.get_array().value_unsafe();
  std::vector<ModelCard> models;
  for (const dom::element item : items) {
    if (auto card = model_card_of(item)) models.push_back(*std::move(card));
  }
  if (models.empty() && items.size() > 0) return missing("data[0].id", "a string that is not empty");
  return models;
}

std::string load_report_json(const LoadReport& report) {
  std::string out = "{\"epoch\":";
  append_json_string(out, report.epoch);
  out += report.ready ? ",\"ready\":true" : ",\"ready\":false";
  for (const LoadRow& row : kLoadRows) {
    absl::StrAppend(&out, ",\"", to_absl(row.name), "\":", report.*row.member);
  }
  out += ",\"sets\":[";
  for (const LoadReport::SetWork& work : report.sets) {
    absl::StrAppend(&out, &work == report.sets.data() ? "" : ",", "{\"set\":\"", work.set.hex(),
                    "\",\"work_tokens_total\":", work.work_tokens_total,
                    ",\"prefix_tokens\":", work.prefix_tokens, "}");
  }
  out += "]}";
  return out;
}

std::string load_report_json(const LoadReport& report, const CacheReport& cache) {
  std::string out = load_report_json(report);
  if (cache.kv_blocks_cached < 0) return out;
  out.pop_back();
  absl::StrAppend(&out, ",\"kv_blocks_cached\":", cache.kv_blocks_cached, "}");
  return out;
}

namespace {

// A count of tokens of one request; no answer has more.
std::optional<int64_t> tokens_at(dom::object fields, std::string_view name) {
  const auto count = count_at(fields, name);
  return count && *count <= std::numeric_limits<int32_t>::max() ? count : std::nullopt;
}

// `details`: the name of the object that has the cached tokens.
void read_cached(dom::object fields, std::string_view details, ReportedUsage& usage) {
  dom::object found;
  if (fields.at_key(details).get(found)) return;
  const auto cached = tokens_at(found, "cached_tokens");
  if (cached && *cached <= usage.prompt_tokens) usage.cached_tokens = cached;
}

// Likewise the thoughts' tokens.
void read_reasoning(dom::object fields, std::string_view details, ReportedUsage& usage) {
  dom::object found;
  if (fields.at_key(details).get(found)) return;
  usage.reasoning_tokens =
      std::min(tokens_at(found, "reasoning_tokens").value_or(0), usage.completion_tokens);
}

// As the Responses and the Messages API name them.
std::optional<ReportedUsage> usage_of_other_apis(dom::object fields) {
  const auto input = tokens_at(fields, "input_tokens"), output = tokens_at(fields, "output_tokens");
  if (!input && !output) return std::nullopt;
  ReportedUsage usage;
  usage.completion_tokens = output.value_or(0);
  usage.answer_only = !input;
  read_reasoning(fields, "output_tokens_details", usage);
  if (!input) return usage;
  const auto read = tokens_at(fields, "cache_read_input_tokens");
  const int64_t written = tokens_at(fields, "cache_creation_input_tokens").value_or(0);
  usage.prompt_tokens = *input + read.value_or(0) + written;
  if (usage.prompt_tokens > std::numeric_limits<int32_t>::max()) return std::nullopt;
  usage.cached_tokens = read;
  read_cached(fields, "input_tokens_details", usage);
  return usage;
}

}  // namespace

std::optional<ReportedUsage> parse_usage(std::string_view json) {
  const auto root = small_json().parse(json, kSmallJsonBytes);
  if (!root.ok() || !root->is_object()) return std::nullopt;
  const dom::object fields = root->get_object().value_unsafe();
  const auto prompt = tokens_at(fields, "prompt_tokens");
  if (!prompt) return usage_of_other_apis(fields);
  ReportedUsage usage;
  usage.prompt_tokens = *prompt;
  usage.completion_tokens = tokens_at(fields, "completion_tokens").value_or(0);
  read_cached(fields, "prompt_tokens_details", usage);
  read_reasoning(fields, "completion_tokens_details", usage);
  return usage;
}

ApiResult<LoadReport> parse_load_report(std::string_view body) {
  CacheReport cache;
  return parse_load_report(body, cache);
}

ApiResult<LoadReport> parse_load_report(std::string_view body, CacheReport& cache) {
  StrictJson json;
  auto root = parse_object(json, body);
  if (!root.ok()) return root.error();
  LoadReport report;
  dom::element ready;
  for (const auto field : *root) {
    if (field.value.is_null()) continue;
    if (auto fault = read_load_field(field.key, field.value, report)) return *std::move(fault);
  }
  if (report.epoch.empty()) return missing("epoch", "a string that is not empty");
  if (root->at_key("ready").get(ready) || ready.is_null()) return missing("ready", "true or false");
  cache = {};
  cache.kv_blocks_cached = std::min(count_at(*root, "kv_blocks_cached").value_or(-1), kReportCountMax);
  return report;
}

}  // namespace troupe
