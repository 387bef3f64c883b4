#include "worker/load.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>
#include <vector>

#include "worker/input/own_tokens.h"
#include "worker/input/prepare_answer.h"
#include "worker/model/warm_up.h"
#include "worker/sim_device/sim_text.h"
#include "worker/sim_load.h"
#include "worker/text/tokenizer/tokenizer_config.h"

namespace troupe {

RunnerOptions runner_options(const WorkerSettings& settings, const ModelConfig& config) {
  RunnerOptions options = settings.runner;
  options.backend = settings.device;
  options.dtype = choose_dtype(settings.dtype, config.dtype, settings.device == "cuda" || cpu_has_bfloat16());
  options.cuda.cascade = !settings.disable_cascade_attn;
  options.cuda.graphs = !settings.enforce_eager;
  options.cuda.overlaps = settings.launch_overlap && !settings.enforce_eager;
  options.cuda.measures = settings.device == "cuda" && !options.cuda.reference_ops;
  options.block_size = settings.scheduler.block_size;
  options.max_batched_tokens = settings.scheduler.max_num_batched_tokens;
  options.max_num_seqs = settings.scheduler.max_num_seqs;
  options.max_model_len = settings.scheduler.max_model_len;
  return options;
}

// Null where the directory has none.
StatusOr<std::unique_ptr<ChatTemplate>> load_template(const std::string& model_dir, std::string_view name) {
  auto loaded = ChatTemplate::load(model_dir, name);
  if (absl::IsNotFound(loaded.status())) return nullptr;
  return loaded;
}

Status load_text(const std::string& model_dir, LoadedModel& model) {
  TROUPE_ASSIGN_OR_RETURN(model.tokenizer, Tokenizer::load(model_dir));
  model.token_cache = std::make_unique<TokenCache>();
  model.breaker_cache = std::make_unique<DryBreakerCache>(model.tokenizer.get());
  TROUPE_ASSIGN_OR_RETURN(model.chat_template, load_template(model_dir, kDefaultTemplate));
  TROUPE_ASSIGN_OR_RETURN(model.tool_template, load_template(model_dir, kToolTemplate));
  for (const std::string& name : ChatTemplate::names(model_dir)) {
    if (name == kDefaultTemplate || name == kToolTemplate) continue;
    // One that cannot be read, or is not there, keeps no chat from being served: whoever asks for it learns
    // what there is.
    auto more = load_template(model_dir, name);
    if (more.ok() && *more != nullptr) model.more_templates[name] = *std::move(more);
  }
  model.served.special_tokens = model.tokenizer->config().variables();
  return absl::OkStatus();
}

Status load_built_in_text(LoadedModel& model) {
  TROUPE_ASSIGN_OR_RETURN(model.tokenizer, built_in_tokenizer());
  TROUPE_ASSIGN_OR_RETURN(model.chat_template, built_in_chat_template());
  model.served.special_tokens = {{"eos_token", kBuiltInEos}};
  return absl::OkStatus();
}

namespace {

std::vector<ChatTemplate*> templates_of(const LoadedModel& model) {
  std::vector<ChatTemplate*> templates;
  for (ChatTemplate* chat : {model.chat_template.get(), model.tool_template.get()}) {
    if (chat != nullptr) templates.push_back(chat);
  }
  for (const auto& [name, chat] : model.more_templates) templates.push_back(chat.get());
  return templates;
}

}  // namespace

void describe_served(const WorkerSettings& settings, LoadedModel& model) {
  const int64_t kv_token_count = int64_t{model.block_count} * settings.scheduler.block_size;
  auto& served = model.served;
  served.name = settings.served_model_name;
  served.tokenizer = model.tokenizer.get();
  served.token_cache = model.token_cache.get();
  served.breaker_cache = model.breaker_cache.get();
  served.chat_template = model.chat_template.get();
  served.tool_template = model.tool_template.get();
  for (const auto& [name, chat] : model.more_templates) served.named_templates.emplace(name, chat.get());
  if (model.chat_template) served.named_templates.emplace(kDefaultTemplate, model.chat_template.get());
  if (model.tool_template) served.named_templates.emplace(kToolTemplate, model.tool_template.get());
  served.special_tokens_in_content = settings.special_tokens_in_content;
  if (settings.special_tokens_in_content == ContentTokens::kText)
    mark_own_tokens(served, templates_of(model));
  served.forms = model_forms(*model.tokenizer, model.chat_template.get(), model.tool_template.get(),
                             settings.tool_call_parser, settings.reasoning_parser);
  constexpr int32_t kOpenAiCompletionTokens = 16;
  served.completion_count_default = settings.openai_defaults ? kOpenAiCompletionTokens : 0;
  served.block_size = settings.scheduler.block_size;
  served.keeps_prefixes = settings.scheduler.enable_prefix_caching;
  served.api.body_bytes_max = settings.server.http.body_bytes_max;
  served.total_count_max = static_cast<int32_t>(std::min<int64_t>(kv_token_count, model.max_model_len));
  served.prompt_bytes_max = prompt_bytes_bound(*model.tokenizer, served.total_count_max);
}

namespace {

bool has_tokenizer(const std::string& model_dir) {
  std::error_code ignored;
  return std::filesystem::exists(model_dir + "/tokenizer.json", ignored) ||
         std::filesystem::exists(model_dir + "/tokenizer.model", ignored);
}

// Made-up weights need no more than made-up words, where the model has none of its own.
Status load_words(const WorkerSettings& settings, const ModelConfig& config, LoadedModel& model) {
  if (settings.runner.load_format != LoadFormat::kDummy || has_tokenizer(settings.runner.model_dir)) {
    return load_text(settings.runner.model_dir, model);
  }
  TROUPE_RETURN_IF_ERROR(load_built_in_text(model));
  if (model.tokenizer->vocab_size() <= config.vocab_size) return absl::OkStatus();
  return invalid_argument(settings.runner.model_dir +
                          "/config.json: key 'vocab_size': " + std::to_string(config.vocab_size) +
                          " is less than the " + std::to_string(model.tokenizer->vocab_size()) +
                          " of the built-in tokenizer, and there is no tokenizer.json or tokenizer.model");
}

// An answer also ends where the tokenizer says so: fine-tunes change its eos_token more often than their
// config.json.
void add_tokenizer_eos(const Tokenizer& tokenizer, ServedModel& served) {
  const bj::value* eos = served.special_tokens.if_contains("eos_token");
  if (eos == nullptr || !eos->is_string()) return;
  const bj::string& text = eos->get_string();
  const std::optional<int32_t> id = tokenizer.token_to_id({text.data(), text.size()});
  std::vector<int32_t>& ids = served.config.eos_token_ids;
  if (id && *id < served.config.vocab_size && std::find(ids.begin(), ids.end(), *id) == ids.end())
    ids.push_back(*id);
}

// Where the memory went: a line in the log, and gauges.
void tell_memory(const RunnerMemory& memory, Metrics& metrics, const Logger& log) {
  log.info("memory", {{"weights_mib", memory.weight_bytes >> 20},
                      {"activations_mib", memory.activation_bytes >> 20},
                      {"kv_mib", memory.kv_bytes >> 20}});
  if (memory.device) {
    log.info("device_memory",
             {{"total_mib", memory.device->total_bytes >> 20},
              {"in_use_mib", (memory.device->total_bytes - memory.device->free_bytes) >> 20}});
  }
  const auto tell = [&](const char* part, int64_t bytes) {
    metrics
        .gauge("troupe_worker_memory_bytes", "Memory the model holds on its device, for good.",
               {{"part", part}})
        .Set(static_cast<double>(bytes));
  };
  tell("weights", memory.weight_bytes);
  tell("activations", memory.activation_bytes);
  tell("kv", memory.kv_bytes);
}

// A device's first steps are slower than any later one: they are not to be a user's. Behind them it is known
// how much memory is left.
Status warm_up(ModelRunner& runner, const RunnerOptions& options, const Logger& log) {
  const auto begin = std::chrono::steady_clock::now();
  TROUPE_RETURN_IF_ERROR(warm_up(runner, options));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  log.info("warmed_up", {{"seconds", took.count()}});
  TROUPE_RETURN_IF_ERROR(runner.fit_kv());
  const Status saved = runner.save_tuning();
  if (!saved.ok()) {
    log.warn("tuning_not_kept",
             {{"reason", to_std(saved.message())}, {"effect", "the next start measures again"}});
  }
  return absl::OkStatus();
}

StatusOr<LoadedModel> load_checkpoint(const WorkerSettings& settings, Metrics& metrics, const Logger& log) {
  LoadedModel model;
  if (!settings.device_unusable.empty()) {
    log.warn("device_unusable",
             {{"reason", settings.device_unusable}, {"effect", "the CPU computes, many times slower"}});
  }
  TROUPE_ASSIGN_OR_RETURN(auto config, load_model_config(settings.runner.model_dir));
  TROUPE_RETURN_IF_ERROR(load_words(settings, config, model));
  const RunnerOptions options = runner_options(settings, config);
  TROUPE_ASSIGN_OR_RETURN(auto runner, ModelRunner::load(options));
  if (settings.device == "cuda") TROUPE_RETURN_IF_ERROR(warm_up(*runner, options, log));
  model.block_count = runner->block_count();
  model.max_model_len = runner->max_model_len();
  model.served.config = runner->config();
  add_tokenizer_eos(*model.tokenizer, model.served);
  describe_served(settings, model);
  model.grammar_cache = std::make_unique<GrammarCache>(model.tokenizer.get(), model.served.config.vocab_size,
                                                       model.served.config.eos_token_ids);
  model.served.grammar_cache = model.grammar_cache.get();
  if (config.tie_word_embeddings && !model.served.config.tie_word_embeddings) {
    log.warn("head_not_tied", {{"reason", "lm_head.weight is not the embedding that config.json ties it to"},
                               {"effect", "lm_head.weight is used"}});
  }
  for (const std::string& id : model.served.config.eos_ids_unusable) {
    log.warn(
        "eos_token_id_unknown",
        {{"id", id}, {"vocab_size", model.served.config.vocab_size}, {"effect", "no answer ends with it"}});
  }
  for (const std::string& place : model.tokenizer->config().without_text)
    log.warn("added_token_without_text", {{"place", place}, {"effect", "it is left out"}});
  if (model.served.total_count_max < model.max_model_len) {
    log.warn("kv_cache_small", {{"kv_cache_tokens", model.served.total_count_max},
                                {"max_model_len", model.max_model_len},
                                {"effect", "longer requests are refused"}});
  }
  log.info(
      "model_loaded",
      {{"model", settings.runner.model_dir}, {"name", model.served.name}, {"runner", runner->description()}});
  tell_memory(runner->memory(), metrics, log);
  const bool runs_ahead = settings.async_scheduling && runner->runs_ahead();
  model.runner = std::make_unique<ModelStepRunner>(std::move(runner), runs_ahead);
  return model;
}

}  // namespace

StatusOr<LoadedModel> load_model(const WorkerSettings& settings, Metrics& metrics, const Logger& log) {
  return settings.device == "sim" ? load_sim_model(settings, metrics, log)
                                  : load_checkpoint(settings, metrics, log);
}

Engine::Options engine_options(const WorkerSettings& settings, const LoadedModel& model) {
  Engine::Options options;
  options.model_name = settings.served_model_name;
  options.eos_token_ids = model.served.config.eos_token_ids;
  options.scheduler = settings.scheduler;
  options.scheduler.block_count = model.block_count;
  options.scheduler.max_model_len = model.max_model_len;
  return options;
}

WorkerServer::Options server_options(const WorkerSettings& settings) {
  WorkerServer::Options options = settings.server;
  options.generator.requests_max = int64_t{settings.scheduler.max_num_seqs} + settings.scheduler.max_waiting;
  return options;
}

}  // namespace troupe
