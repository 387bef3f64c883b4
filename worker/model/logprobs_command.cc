#include "worker/model/logprobs_command.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <charconv>
#include <istream>
#include <limits>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "common/settings/schema.h"
#include "worker/model/load/weights.h"
#include "worker/model/runner.h"

namespace troupe {

namespace {

constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

// Enough for scoring, and small enough that a model of 128k positions needs no KV memory for all of them.
constexpr int32_t kDefaultLenMax = 8192;

struct Settings {
  std::string device = "auto";
  std::string dtype = "auto";
  RunnerOptions runner;  // all else that is set
};

StatusOr<std::vector<TokenId>> parse_ids(std::string_view line) {
  TROUPE_ASSIGN_OR_RETURN(const bj::value value, parse_json(line));
  const bj::array* array = value.if_array();
  if (array == nullptr || array->empty()) return invalid_argument("must be a JSON array of ids, not empty");
  std::vector<TokenId> ids;
  ids.reserve(array->size());
  for (const bj::value& item : *array) {
    if (!item.is_int64() || item.get_int64() < 0 || item.get_int64() > std::numeric_limits<TokenId>::max()) {
      return invalid_argument(absl::StrCat("item ", ids.size(), " is ", to_json(item), ", not a token id"));
    }
    ids.push_back(static_cast<TokenId>(item.get_int64()));
  }
  return ids;
}

// Appends the shortest text that reads back as the same float. Infinity (a logit of -inf) is not JSON: null.
void append_float(std::string& text, float value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  const bool finite = value - value == 0;
  text.append(finite ? std::string_view(buffer, static_cast<size_t>(end - buffer)) : "null");
}

StatusOr<std::unique_ptr<ModelRunner>> load_runner(const Settings& settings) {
  TROUPE_ASSIGN_OR_RETURN(const ModelConfig config, load_model_config(settings.runner.model_dir));
  RunnerOptions options = settings.runner;
  options.backend = settings.device == "auto" ? "cpu" : settings.device;
  // float16 is for weights only; computing in bfloat16 would lose 3 of its bits.
  const bool bfloat16 =
      settings.dtype == "bfloat16" || (settings.dtype == "auto" && config.dtype == DType::kBFloat16);
  options.dtype = bfloat16 ? DType::kBFloat16 : DType::kFloat32;
  // Within its window a model computes full attention, so the default length stays within it.
  int64_t length = std::min<int64_t>(config.max_position_embeddings, kDefaultLenMax);
  if (config.sliding_window > 0) length = std::min(length, config.sliding_window);
  if (options.max_model_len == 0) options.max_model_len = static_cast<int32_t>(length);
  // Whole blocks, so that the last position has a slot.
  options.kv_cache_tokens = int64_t{options.max_model_len} + options.block_size - 1;
  return ModelRunner::load(options);
}

StatusOr<std::string> score_line(ModelRunner& runner, std::string_view line) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, parse_ids(line));
  TROUPE_ASSIGN_OR_RETURN(const std::vector<float> scores, runner.logprobs(ids));
  std::string text = "[";
  for (const float score : scores) {
    if (text.size() > 1) text += ", ";
    append_float(text, score);
  }
  return text + "]";
}

}  // namespace

int logprobs_command(const std::vector<std::string>& args, std::istream& in, std::ostream& out,
                     std::ostream& err) {
  Settings settings;
  SettingsSchema schema("troupe-worker logprobs",
                        "Log-probability of every id after the first, one JSON array of ids a line on stdin");
  schema.add("model", &settings.runner.model_dir, "model directory (config.json and safetensors)");
  schema.add("device", &settings.device,
             "where to compute: auto (cpu), cpu, cuda, ref, or a backend module's path");
  schema.add("dtype", &settings.dtype, "type of activations; auto: the checkpoint's")
      .choices({"auto", "float32", "bfloat16"});
  schema.add_enum("quantization", &settings.runner.weight_format, kQuantizationNames,
                  "how products' weights are held");
  schema.add_enum(
      "load_format", &settings.runner.load_format, kLoadFormatNames,
      "where weights come from: auto (safetensors), or dummy: random ones of config.json's shapes");
  schema.add("reference_ops", &settings.runner.cuda.reference_ops,
             "device cuda: the plainest implementation of every op");
  schema.add("threads", &settings.runner.threads, "threads to compute with").range(1, 1024);
  schema
      .add("max_model_len", &settings.runner.max_model_len,
           "longest line in ids; 0: the model's, at most 8192 and its window")
      .range(0, 1 << 24);
  std::vector<const char*> argv{"troupe-worker logprobs"};
  for (const std::string& arg : args) argv.push_back(arg.c_str());
  const auto parsed = schema.parse(static_cast<int>(argv.size()), argv.data());
  if (parsed.ok() && parsed->help) {
    out << schema.help();
    return kExitOk;
  }
  if (!parsed.ok() || !parsed->positional.empty() || settings.runner.model_dir.empty()) {
    const std::string reason = !parsed.ok() ? std::string(parsed.status().message())
                               : settings.runner.model_dir.empty()
                                   ? "--model DIR is missing"
                                   : absl::StrCat("unknown argument '", parsed->positional.front(), "'");
    err << "troupe-worker logprobs: " << reason << "\n";
    return kExitUsage;
  }
  const auto runner = load_runner(settings);
  if (!runner.ok()) {
    err << "troupe-worker logprobs: " << to_std(runner.status().message()) << "\n";
    return kExitFailed;
  }
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    const StatusOr<std::string> answer = score_line(**runner, line);
    if (!answer.ok()) {
      err << "troupe-worker logprobs: line " << number << ": " << to_std(answer.status().message()) << "\n";
      return kExitFailed;
    }
    out << *answer << "\n" << std::flush;
  }
  return kExitOk;
}

}  // namespace troupe
