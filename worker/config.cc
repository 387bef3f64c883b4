#include "worker/config.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include "common/etcd/etcd.h"
#include "common/net/http_settings.h"
#include "common/net/tls_settings.h"
#include "common/settings/log_levels.h"
#include "kernels/backends.h"
#include "kernels/kernels.h"
#include "worker/model/load/weights.h"
#include "worker/schedule/node_profile.h"
#include "worker/schedule/setting_names.h"

namespace troupe {

namespace {

constexpr HttpLimitSettings kHttpLimits = {
    .body_bytes = {"largest request body", 1 << 30},
    .bodies_bytes = {"all request bodies held at once", 1e12},
    .header_bytes = {"largest request head", 1 << 20},
    .connections = {"open connections", 1 << 20},
    .write_timeout_doc = "for a client that does not read its answer",
    .timeout_ms_most = 86'400'000,
    .live = false,
};

std::vector<std::string> with_auto_and_none(const std::vector<std::string_view>& names) {
  std::vector<std::string> choices = {"auto", "none"};
  choices.insert(choices.end(), names.begin(), names.end());
  return choices;
}

void describe_model(SettingsSchema& schema, WorkerSettings& s) {
  schema.add("model", &s.runner.model_dir,
             "directory of the model, in Hugging Face's layout; required but for device sim, which takes its "
             "tokenizer and template");
  schema.add("served_model_name", &s.served_model_name,
             "name clients ask for; empty: the model directory's own name");
  schema.add_enum(
      "special_tokens_in_content", &s.special_tokens_in_content, kContentTokensNames,
      "what a special token's text, such as <|im_end|>, is in a chat's messages, tools and template "
      "arguments: text, so that no user ends a turn, or (allow) the token; completions always have the "
      "token");
  schema
      .add("tool_call_parser", &s.tool_call_parser,
           "form in which the model writes calls of tools: auto is what its chat template shows; none: what "
           "looks like a call is text")
      .choices(with_auto_and_none(tool_form_names()));
  schema
      .add(
          "reasoning_parser", &s.reasoning_parser,
          "form in which the model writes its thoughts: auto is what its chat template shows; none: they are "
          "text")
      .choices(with_auto_and_none(thought_form_names()));
  schema.add(
      "openai_defaults", &s.openai_defaults,
      "a completion without max_tokens ends after 16 tokens, as OpenAI's and vLLM's do; else it goes on "
      "as long as it fits, as a chat does");
  schema
      .add("device", &s.device,
           "what computes; auto is the best this machine has; sim: nothing does, filler text comes at a "
           "profile's speed")
      .choices({"auto", "cpu", "cuda", "sim"});
  schema.add("allow_cpu", &s.allow_cpu,
             "device auto: the CPU computes where there is a GPU that cannot be used; else that ends the "
             "start");
  schema
      .add("dtype", &s.dtype,
           "type of weights, KV and products' inputs; auto: bfloat16 where the checkpoint is in bfloat16 and "
           "the device is cuda or a CPU with AVX512-BF16, else float32")
      .choices({"auto", "float32", "bfloat16"});
  schema.add_enum("quantization", &s.runner.weight_format, kQuantizationNames,
                  "how products' weights are held; int8: half of bfloat16's bytes, computed in 8 bits");
  schema.add_enum(
      "load_format", &s.runner.load_format, kLoadFormatNames,
      "where weights come from: auto is the model's safetensors; dummy is random ones of config.json's "
      "shapes, for benches and load tests");
  schema.add("reference_ops", &s.runner.cuda.reference_ops,
             "device cuda: the plainest implementation of every op, for accuracy work");
  schema.add("disable_cascade_attn", &s.disable_cascade_attn,
             "device cuda: every request of a step reads a prefix that several share by itself");
  schema.add(
      "enforce_eager", &s.enforce_eager,
      "device cuda: kernels are launched one by one, also those of decodes, and none begins before the one "
      "before it has ended; for finding errors");
  schema.add("launch_overlap", &s.launch_overlap,
             "device cuda: a kernel comes to the device while the one before it still runs; from sm_90 on");
  schema.add("async_scheduling", &s.async_scheduling,
             "device cuda: a step is planned and launched while the one before it is computed");
  schema
      .add("hang_timeout_secs", &s.runner.cuda.hang_timeout,
           "device cuda: a step that takes longer ends the worker, with the launches of which one hangs; 0: "
           "it "
           "waits for ever")
      .range(0, 86'400)
      .unit("s");
  schema.add(
      "tune_file", &s.runner.cuda.tune_file,
      "device cuda: where it is kept which implementation of a product was measured to be the fastest; "
      "empty: measured at every start");
  schema.add("threads", &s.runner.threads, "compute threads; 0: one a core").range(0, 1024);
}

void describe_scheduling(SettingsSchema& schema, WorkerSettings& s) {
  schema
      .add("max_model_len", &s.scheduler.max_model_len,
           "longest prompt and answer together; 0: the model's or profile's own")
      .range(0, 1 << 24)
      .unit("tokens");
  schema
      .add("max_num_seqs", &s.scheduler.max_num_seqs,
           "requests computed side by side; 0: 64, or the sim profile's")
      .range(0, 65536);
  schema
      .add("max_num_batched_tokens", &s.scheduler.max_num_batched_tokens,
           "most tokens in one step; 0: 512, or the sim profile's")
      .range(0, 1 << 20)
      .unit("tokens");
  schema.add("max_waiting", &s.scheduler.max_waiting, "requests that may wait; more are answered 429")
      .range(0, 1 << 20);
  schema
      .add("kv_cache_tokens", &s.runner.kv_cache_tokens,
           "KV memory, of running requests and cached prefixes together; 0: what gpu_memory_utilization "
           "leaves on "
           "device cuda, the sim profile's, else 32768")
      .range(0, 1e12)
      .unit("tokens");
  schema
      .add("gpu_memory_utilization", &s.runner.memory_utilization,
           "share of an accelerator's memory in use, whoever uses it, where kv_cache_tokens is 0; the cpu "
           "device "
           "goes by kv_cache_tokens alone")
      .range(0.01, 1);
  schema
      .add("block_size", &s.scheduler.block_size,
           "unit of KV allocation, sharing and eviction; 0: 16, or the sim profile's")
      .range(0, 1024)
      .unit("tokens");
  schema.add("enable_prefix_caching", &s.scheduler.enable_prefix_caching,
             "keep KV of finished requests for later ones");
  schema
      .add("max_pinned_share", &s.server.max_pinned_share,
           "share of the KV memory that prefixes pinned by POST /v1/prefixes may take")
      .range(0, 1);
  schema.add("hand_on_conversations", &s.server.hand_on_conversations,
             "GET /v1/conversations tells the token ids of cached conversations, so that they go on "
             "elsewhere at a drain");
  schema
      .add("max_sets", &s.scheduler.max_sets,
           "most sets whose answers' lengths and whose work are told apart")
      .range(1, 1 << 20);
  schema.add_enum(
      "batching", &s.scheduler.batching, kBatchingNames,
      "what a step holds: decodes and prompt chunks together; prompts first, decodes apart; or that of "
      "batches which nobody joins before all of them have ended; for comparisons");
  schema
      .add("tpot_budget_ms", &s.scheduler.tpot_budget,
           "how long a step may take because of the prefill beside its decodes; 0: as long as it takes")
      .range(0, 60'000)
      .unit("ms");
  schema.add_enum(
      "reserve_output", &s.scheduler.output_reserve, kOutputReserveNames,
      "KV memory that admission leaves for answers that run: one block each, what answers like them "
      "took, or their max_tokens");
}

void describe_sim(SettingsSchema& schema, WorkerSettings& s) {
  schema.add("sim_profile", &s.sim_profile,
             "device sim: the node, as a name in configs/sim or the path of a .yaml file");
  schema.add("sim_speed", &s.sim_speed, "device sim: the profile's node, so many times as fast")
      .range(0.001, 1000);
  schema
      .add("sim_answer_tokens", &s.sim_answer_tokens,
           "device sim: mean length of answers to requests without max_tokens, drawn from their seed")
      .range(1, 1 << 20)
      .unit("tokens");
}

void describe_registration(SettingsSchema& schema, WorkerSettings& s) {
  schema.add(
      "etcd_endpoints", &s.etcd_endpoints,
      "etcd's members, such as http://127.0.0.1:2379, where gateways find this worker; empty: they are "
      "told otherwise");
  schema.add("etcd_prefix", &s.registration.prefix, "what its keys there begin with");
  schema.add("etcd_lease_ttl_secs", &s.registration.ttl, "a worker that is silent for this long is gone")
      .range(2, 3600)
      .unit("s");
  schema.add("advertise_url", &s.advertise_url, "where gateways reach this worker; empty: at host and port");
  describe_tls_client(schema, "etcd_tls", "etcd's members", s.etcd_tls, TlsReload::kNever);
}

void describe_serving(SettingsSchema& schema, WorkerSettings& s) {
  schema.add("host", &s.server.http.host, "address to listen on");
  schema.add("port", &s.server.http.port, "port to listen on; 0: any free one, told by the log")
      .range(0, 65535);
  schema.add_enum("log_level", &s.log_level, kLogLevelNames, "least severe lines to log");
  schema
      .add("shutdown_grace_period_secs", &s.grace,
           "how long running requests may go on after SIGTERM or SIGINT")
      .range(0, 86400)
      .unit("s");
  schema
      .add("shutdown_notice_secs", &s.server.notice,
           "of these, how long new requests are still taken, for gateways to move what is cached here first")
      .range(0, 3600)
      .unit("s");
  describe_tls_listener(schema, "tls", s.tls, TlsReload::kNever);
  describe_registration(schema, s);
  describe_http_bodies(schema, s.server.http, kHttpLimits);
  describe_http_head(schema, s.server.http, kHttpLimits);
  describe_http_connections(schema, s.server.http, kHttpLimits);
  describe_cors(schema, s.server.http, kHttpLimits);
  describe_http_timeouts(schema, s.server.http, kHttpLimits);
  schema
      .add("limits.request_timeout_ms", &s.server.generator.request_timeout,
           "for a whole request that comes directly; one through a gateway has the gateway's")
      .range(1, 86'400'000)
      .unit("ms");
  schema
      .add("limits.text_timeout_ms", &s.server.generator.text_timeout,
           "processor time that the template and the tokens of one request may take")
      .range(10, 3'600'000)
      .unit("ms");
}

// "configs/demo-model/" → "demo-model".
std::string directory_name(const std::string& path) {
  std::error_code error;
  auto absolute = std::filesystem::absolute(path, error).lexically_normal();
  if (!absolute.has_filename()) absolute = absolute.parent_path();
  return absolute.filename().string();
}

// REQUIRES: `otherwise` fits, as a profile's numbers do.
template <typename T>
void fill_in(T& value, int64_t otherwise) {
  if (value == 0) value = static_cast<T>(otherwise);
}

void fill_in_defaults(WorkerSettings& s) {
  const SchedulerConfig defaults;
  fill_in(s.scheduler.block_size, defaults.block_size);
  fill_in(s.scheduler.max_num_seqs, defaults.max_num_seqs);
  fill_in(s.scheduler.max_num_batched_tokens, defaults.max_num_batched_tokens);
  if (s.device != "cuda") fill_in(s.runner.kv_cache_tokens, 32768);  // cuda: what fits its memory
}

Status fill_in_from_profile(WorkerSettings& s) {
  const auto profile = load_node_profile(s.sim_profile);
  if (!profile.ok()) return annotate(profile.status(), "--sim-profile");
  SchedulerConfig& scheduler = s.scheduler;
  fill_in(scheduler.block_size, profile->block_size);
  fill_in(scheduler.max_num_seqs, profile->max_num_seqs);
  fill_in(scheduler.max_num_batched_tokens,
          std::max<int64_t>(profile->max_num_batched_tokens, scheduler.max_num_seqs));
  fill_in(s.runner.kv_cache_tokens, profile->kv_cache_tokens);
  fill_in(scheduler.max_model_len, std::min<int64_t>(profile->max_model_len, s.runner.kv_cache_tokens));
  if (s.runner.model_dir.empty() && s.served_model_name.empty()) s.served_model_name = profile->name;
  return absl::OkStatus();
}

Status check_registration(const WorkerSettings& s) {
  const std::string& host = s.server.http.host;
  if (const Status prefix = check_state_prefix(s.registration.prefix); !prefix.ok())
    return annotate(prefix, "--etcd-prefix");
  const auto etcd = EtcdOptions::of(s.etcd_endpoints, s.registration.ttl);
  TROUPE_RETURN_IF_ERROR(etcd.status());
  if (!s.advertise_url.empty()) {
    const auto url = Endpoint::parse(s.advertise_url);
    if (url.ok() && !url->tls && !s.tls.certificate.empty())
      return invalid_argument("--advertise-url " + s.advertise_url +
                              ": must be an https:// URL where --tls.certificate is set");
    return url.ok() ? absl::OkStatus() : annotate(url.status(), "--advertise-url");
  }
  if (!s.etcd_endpoints.empty() && (host == "0.0.0.0" || host == "::"))
    return invalid_argument("--advertise-url: is needed with --etcd-endpoints where --host is " + host +
                            ", which is no address to be reached at");
  return absl::OkStatus();
}

Status check_scheduling(const WorkerSettings& s) {
  const SchedulerConfig& scheduler = s.scheduler;
  const int64_t kv_cache_tokens = s.runner.kv_cache_tokens;
  if (scheduler.max_model_len == 1) {
    return invalid_argument(
        "--max-model-len 1: must be 0 (the model's own) or at least 2, a token of the prompt and one "
        "of the answer");
  }
  const bool what_fits = kv_cache_tokens == 0;
  if (!what_fits && scheduler.max_model_len > 0 && kv_cache_tokens < scheduler.max_model_len) {
    return invalid_argument("--kv-cache-tokens " + std::to_string(kv_cache_tokens) +
                            " is less than --max-model-len " + std::to_string(scheduler.max_model_len) +
                            ": one request of full length must fit");
  }
  if (!what_fits && kv_cache_tokens < scheduler.block_size) {
    return invalid_argument("--kv-cache-tokens " + std::to_string(kv_cache_tokens) +
                            " is less than one block (--block-size " + std::to_string(scheduler.block_size) +
                            ")");
  }
  // A model's runner has its own bound.
  if (s.device == "sim" && kv_cache_tokens > (1 << 30)) {
    return invalid_argument("--kv-cache-tokens " + std::to_string(kv_cache_tokens) + " is more than " +
                            std::to_string(1 << 30));
  }
  if (scheduler.max_num_batched_tokens < scheduler.max_num_seqs) {
    return invalid_argument("--max-num-batched-tokens " + std::to_string(scheduler.max_num_batched_tokens) +
                            " is less than --max-num-seqs " + std::to_string(scheduler.max_num_seqs) +
                            ": a step must hold one token of every running request");
  }
  return absl::OkStatus();
}

}  // namespace

WorkerSettings::WorkerSettings() {
  runner.cuda.tune_file = "/var/cache/troupe/tuning";
  runner.cuda.hang_timeout = std::chrono::minutes{1};
  runner.threads = 0;
  scheduler.max_model_len = 0;
  scheduler.max_num_seqs = 0;
  scheduler.max_num_batched_tokens = 0;
  scheduler.block_size = 0;
  scheduler.tpot_budget = std::chrono::milliseconds(200);
  server.http.port = 31000;
  server.http.header_bytes_max = 36u << 10;  // a gateway's largest and its own lines
  server.http.keeps_files = true;
  server.notice = std::chrono::seconds(5);
}

void describe_worker_settings(SettingsSchema& schema, WorkerSettings& settings) {
  describe_model(schema, settings);
  describe_scheduling(schema, settings);
  describe_sim(schema, settings);
  describe_serving(schema, settings);
}

Status choose_device(WorkerSettings& s, const StatusOr<std::string>& found) {
  const std::string reason = found.ok() ? "" : std::string(to_std(found.status().message()));
  if (!found.ok() && s.device == "cuda") return invalid_argument("--device cuda: " + reason);
  if (!found.ok() && found.status().code() != absl::StatusCode::kNotFound) {
    if (!s.allow_cpu) {
      return invalid_argument("--device auto: this machine's GPU cannot be used: " + reason +
                              ". --device cpu, or --device auto --allow-cpu, computes on the CPU, many times "
                              "slower");
    }
    s.device_unusable = reason;
  }
  s.device = found.ok() ? "cuda" : "cpu";
  if (s.device == "cuda" && s.runner.weight_format == WeightFormat::kInt8) {
    return invalid_argument("--quantization int8: only --device cpu has it, and the device is cuda");
  }
  return absl::OkStatus();
}

Status resolve_worker_settings(WorkerSettings& s) {
  if (s.device == "sim") {
    TROUPE_RETURN_IF_ERROR(fill_in_from_profile(s));
  } else {
    if (s.device != "cpu") TROUPE_RETURN_IF_ERROR(choose_device(s, find_cuda_device()));
    if (s.runner.model_dir.empty()) {
      return invalid_argument("--model is required: the directory that holds config.json and *.safetensors");
    }
  }
  fill_in_defaults(s);
  if (s.served_model_name.empty()) s.served_model_name = directory_name(s.runner.model_dir);
  TROUPE_RETURN_IF_ERROR(check_scheduling(s));
  TROUPE_RETURN_IF_ERROR(check_registration(s));
  TROUPE_RETURN_IF_ERROR(normalize_origins(s.server.http.cors_origins));
  TROUPE_RETURN_IF_ERROR(make_tls_listener(s.tls, "tls").status());
  TROUPE_RETURN_IF_ERROR(TlsContext::for_client(s.etcd_tls, "etcd_tls").status());
  fill_in(s.runner.threads, std::max(1u, std::thread::hardware_concurrency()));
  return absl::OkStatus();
}

DType choose_dtype(std::string_view dtype, DType checkpoint, bool has_bfloat16) {
  if (dtype == "bfloat16") return DType::kBFloat16;
  if (dtype == "auto" && checkpoint == DType::kBFloat16 && has_bfloat16) return DType::kBFloat16;
  return DType::kFloat32;
}

bool cpu_has_bfloat16() {
  return __builtin_cpu_supports("avx512bf16") != 0;
}

}  // namespace troupe
