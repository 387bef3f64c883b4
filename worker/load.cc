#include "worker/load.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "worker/model/load/weights.h"
#include "worker/model/warm_up.h"
#include "worker/sim_device/sim_text.h"
#include "worker/sim_load.h"

namespace troupe {

RunnerOptions runner_options(const WorkerSettings& settings, const ModelConfig& config) {
  RunnerOptions options;
  options.model_dir = settings.model;
  options.load_format = settings.load_format == "dummy" ? LoadFormat::kDummy : LoadFormat::kAuto;
  options.backend = settings.device;
  options.dtype = choose_dtype(settings.dtype, config.dtype, settings.device == "cuda" || cpu_has_bfloat16());
  options.reference_ops = settings.reference_ops;
  options.cascade = !settings.disable_cascade_attn;
  options.graphs = !settings.enforce_eager;
  options.overlaps = settings.launch_overlap && !settings.enforce_eager;
  options.measures = settings.device == "cuda" && !settings.reference_ops;
  options.tune_file = settings.tune_file;
  options.weight_format = weight_format_of(settings.quantization);
  options.threads = static_cast<int>(settings.threads);
  options.block_size = static_cast<int32_t>(settings.block_size);
  options.kv_cache_tokens = settings.kv_cache_tokens;
  options.memory_utilization = settings.gpu_memory_utilization;
  options.max_batched_tokens = static_cast<int32_t>(settings.max_num_batched_tokens);
  options.max_num_seqs = static_cast<int32_t>(settings.max_num_seqs);
  options.max_model_len = static_cast<int32_t>(settings.max_model_len);
  return options;
}

Status load_text(const std::string& model_dir, LoadedModel& model) {
  TROUPE_ASSIGN_OR_RETURN(model.tokenizer, Tokenizer::load(model_dir));
  model.token_cache = std::make_unique<TokenCache>();
  auto chat_template = ChatTemplate::load(model_dir);
  if (chat_template.ok()) {
    model.chat_template = *std::move(chat_template);
  } else if (chat_template.status().code() != absl::StatusCode::kNotFound) {
    return chat_template.status();
  }
  TROUPE_ASSIGN_OR_RETURN(model.served.special_tokens, load_special_tokens(model_dir));
  return absl::OkStatus();
}

Status load_built_in_text(LoadedModel& model) {
  TROUPE_ASSIGN_OR_RETURN(model.tokenizer, built_in_tokenizer());
  TROUPE_ASSIGN_OR_RETURN(model.chat_template, built_in_chat_template());
  model.served.special_tokens = {{"eos_token", kBuiltInEos}};
  return absl::OkStatus();
}

void describe_served(const WorkerSettings& settings, LoadedModel& model) {
  const int64_t kv_token_count = int64_t{model.block_count} * settings.block_size;
  auto& served = model.served;
  served.name = settings.served_model_name;
  served.tokenizer = model.tokenizer.get();
  served.token_cache = model.token_cache.get();
  served.chat_template = model.chat_template.get();
  served.block_size = static_cast<int32_t>(settings.block_size);
  served.keeps_prefixes = settings.enable_prefix_caching;
  served.api.body_bytes_max = static_cast<size_t>(settings.limits.body_bytes);
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
  if (settings.load_format != "dummy" || has_tokenizer(settings.model)) {
    return load_text(settings.model, model);
  }
  TROUPE_RETURN_IF_ERROR(load_built_in_text(model));
  if (model.tokenizer->vocab_size() <= config.vocab_size) return absl::OkStatus();
  return invalid_argument(settings.model +
                          "/config.json: key 'vocab_size': " + std::to_string(config.vocab_size) +
                          " is less than the " + std::to_string(model.tokenizer->vocab_size()) +
                          " of the built-in tokenizer, and there is no tokenizer.json or tokenizer.model");
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
  TROUPE_ASSIGN_OR_RETURN(auto config, load_model_config(settings.model));
  TROUPE_RETURN_IF_ERROR(load_words(settings, config, model));
  const RunnerOptions options = runner_options(settings, config);
  TROUPE_ASSIGN_OR_RETURN(auto runner, ModelRunner::load(options));
  if (settings.device == "cuda") TROUPE_RETURN_IF_ERROR(warm_up(*runner, options, log));
  model.block_count = runner->block_count();
  model.max_model_len = runner->max_model_len();
  model.served.config = runner->config();
  describe_served(settings, model);

  if (model.served.total_count_max < model.max_model_len) {
    log.warn("kv_cache_small", {{"kv_cache_tokens", model.served.total_count_max},
                                {"max_model_len", model.max_model_len},
                                {"effect", "longer requests are refused"}});
  }
  log.info("model_loaded",
           {{"model", settings.model}, {"name", model.served.name}, {"runner", runner->description()}});
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
  options.scheduler.block_size = static_cast<int32_t>(settings.block_size);
  options.scheduler.block_count = model.block_count;
  options.scheduler.max_num_seqs = static_cast<int32_t>(settings.max_num_seqs);
  options.scheduler.max_num_batched_tokens = static_cast<int32_t>(settings.max_num_batched_tokens);
  options.scheduler.max_waiting = static_cast<int32_t>(settings.max_waiting);
  options.scheduler.max_model_len = model.max_model_len;
  options.scheduler.enable_prefix_caching = settings.enable_prefix_caching;
  options.scheduler.batching = batching_of(settings.batching);
  options.scheduler.tpot_budget = std::chrono::milliseconds(settings.tpot_budget_ms);
  options.scheduler.output_reserve = output_reserve_of(settings.reserve_output);
  options.scheduler.max_sets = static_cast<int32_t>(settings.max_sets);
  return options;
}

WorkerServer::Options server_options(const WorkerSettings& settings) {
  const auto& limits = settings.limits;
  WorkerServer::Options options;
  options.http.host = settings.host;
  options.http.port = static_cast<uint16_t>(settings.port);
  options.http.header_bytes_max = static_cast<size_t>(limits.header_bytes);
  options.http.body_bytes_max = static_cast<size_t>(limits.body_bytes);
  options.http.bodies_bytes_max = static_cast<size_t>(limits.bodies_bytes);
  options.http.connections_max = static_cast<size_t>(limits.connections);
  options.http.header_timeout = std::chrono::milliseconds(limits.header_timeout_ms);
  options.http.body_timeout = std::chrono::milliseconds(limits.body_timeout_ms);
  options.http.idle_timeout = std::chrono::milliseconds(limits.idle_timeout_ms);
  options.http.write_timeout = std::chrono::milliseconds(limits.write_timeout_ms);
  options.max_pinned_share = settings.max_pinned_share;
  options.hand_on_conversations = settings.hand_on_conversations;
  options.notice = std::chrono::seconds(settings.shutdown_notice_secs);
  options.generator.requests_max = settings.max_num_seqs + settings.max_waiting;
  options.generator.request_timeout = std::chrono::milliseconds(limits.request_timeout_ms);
  return options;
}

}  // namespace troupe
