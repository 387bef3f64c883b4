#pragma once

// What an operator may set on a worker. The names are vLLM's wherever vLLM has one, so that a command line
// moves over unchanged. The defaults are the member initialisers below; configs/worker.yaml repeats every key
// with a comment, and a test holds the two together.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/log.h"
#include "common/core/status.h"
#include "common/etcd/keys.h"
#include "common/net/tls.h"
#include "common/settings/schema.h"
#include "worker/model/config.h"
#include "worker/schedule/scheduler.h"

namespace troupe {

struct WorkerSettings {
  // The model and where it runs.
  std::string model;
  std::string served_model_name;  // empty: the model directory's own name
  std::string device = "auto";
  std::string device_unusable;  // resolved: why "auto" is cpu although the machine has a driver for more
  std::string dtype = "auto";
  std::string quantization = "none";
  std::string load_format = "auto";
  bool reference_ops = false;
  bool disable_cascade_attn = false;
  bool async_scheduling = true;
  bool enforce_eager = false;
  bool launch_overlap = true;
  std::string tune_file = "/var/cache/troupe/tuning";
  int64_t threads = 0;  // 0: all cores

  // What the scheduler may use.
  int64_t max_model_len = 0;           // 0: the model's own, or the sim profile's
  int64_t max_num_seqs = 0;            // 0: 64, or the sim profile's
  int64_t max_num_batched_tokens = 0;  // 0: 512, or the sim profile's
  int64_t max_waiting = 1024;
  int64_t kv_cache_tokens = 0;  // 0: 32768, or the sim profile's
  double gpu_memory_utilization = 0.9;
  int64_t block_size = 0;  // 0: 16, or the sim profile's
  bool enable_prefix_caching = true;
  double max_pinned_share = 0.25;
  bool hand_on_conversations = true;
  int64_t max_sets = 256;
  std::string batching = "merged";
  int64_t tpot_budget_ms = 200;  // 0: none
  std::string reserve_output = "predicted";

  // A worker without a model (device sim).
  std::string sim_profile = "study";
  double sim_speed = 1;
  int64_t sim_answer_tokens = 120;

  // Where it listens, and what it bears with.
  std::string host = "127.0.0.1";
  int64_t port = 31000;
  std::string log_level = "info";
  int64_t shutdown_grace_period_secs = 30;
  int64_t shutdown_notice_secs = 5;
  TlsFiles tls;

  // Where it tells gateways that it is there.
  std::vector<std::string> etcd_endpoints;  // empty: it does not
  std::string etcd_prefix = std::string(kStatePrefix);
  int64_t etcd_lease_ttl_secs = 5;
  std::string advertise_url;  // empty: of host and port
  TlsFiles etcd_tls;

  struct Limits {
    int64_t body_bytes = 16 << 20;
    int64_t bodies_bytes = 1 << 30;
    int64_t header_bytes = 32 << 10;
    int64_t connections = 4096;
    int64_t header_timeout_ms = 10'000;
    int64_t body_timeout_ms = 30'000;
    int64_t idle_timeout_ms = 75'000;
    int64_t write_timeout_ms = 30'000;
    int64_t request_timeout_ms = 600'000;
  } limits;
};

// Describes every setting to `schema`. `settings` must outlive it.
void describe_worker_settings(SettingsSchema& schema, WorkerSettings& settings);

// What no single key can tell: combinations, devices this build lacks, a missing --model. Fills in what
// "auto", 0 and empty stand for where that needs no model. Certificates and keys are read, for whether they
// can be used. Errors are kInvalidArgument and name the flag.
Status resolve_worker_settings(WorkerSettings& settings);

// "float32", "bfloat16", or for "auto": bfloat16 where the checkpoint is in bfloat16 and this CPU multiplies
// it natively (AVX512-BF16); emulated, it is slower than float32. REQUIRES: `dtype` is one of the three.
DType choose_dtype(std::string_view dtype, DType checkpoint, bool cpu_has_bfloat16);
bool cpu_has_bfloat16();

// REQUIRES: one of the choices of --reserve-output.
OutputReserve output_reserve_of(std::string_view name);

// REQUIRES: one of the choices of --log-level.
LogLevel log_level_of(std::string_view name);

}  // namespace troupe
