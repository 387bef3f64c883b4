#pragma once

// The settings of a worker. The names are vLLM's wherever vLLM has one, so that a command line
// moves over unchanged. Most settings bind to the options of their part, which hold the defaults.
// configs/worker.yaml repeats every key with a comment; a test compares the two.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/log.h"
#include "common/core/status.h"
#include "common/net/tls.h"
#include "common/settings/schema.h"
#include "worker/http/server.h"
#include "worker/model/config.h"
#include "worker/model/runner.h"
#include "worker/registration_options.h"
#include "worker/schedule/scheduler.h"

namespace troupe {

struct WorkerSettings {
  WorkerSettings();  // sets the defaults in which the program differs from a part alone

  // The model and where it runs. Settings bind to the runner's model, weights, memory and threads;
  // runner_options() derives the rest.
  RunnerOptions runner;           // kv_cache_tokens 0: 32768, or the sim profile's; threads 0: all cores
  std::string served_model_name;  // empty: the model directory's own name
  ContentTokens special_tokens_in_content = ContentTokens::kText;
  bool openai_defaults = false;
  std::string tool_call_parser = "auto", reasoning_parser = "auto";
  std::string device = "auto";
  bool allow_cpu = false;
  std::string device_unusable;  // resolved: why "auto" is cpu although the machine has a GPU
  std::string dtype = "auto";
  bool disable_cascade_attn = false;
  bool async_scheduling = true;
  bool enforce_eager = false;
  bool launch_overlap = true;

  // The scheduler's bounds. 0 in block_size, max_num_seqs and max_num_batched_tokens: the sim profile's or
  // SchedulerConfig's own; in max_model_len: the sim profile's or the model's.
  SchedulerConfig scheduler;

  // A worker without a model (device sim).
  std::string sim_profile = "study";
  double sim_speed = 1;
  int32_t sim_answer_tokens = 120;

  // The HTTP server's address and limits.
  WorkerServer::Options server;
  LogLevel log_level = LogLevel::kInfo;
  std::chrono::seconds grace{30};
  TlsFiles tls;

  // The etcd in which it registers, for gateways to find it.
  std::vector<std::string> etcd_endpoints;  // empty: it does not
  RegistrationOptions registration;
  std::string advertise_url;  // empty: of host and port
  TlsFiles etcd_tls;
};

// Describes every setting to `schema`. `settings` must outlive it.
void describe_worker_settings(SettingsSchema& schema, WorkerSettings& settings);

// Checks what no single key shows: combinations, devices this build lacks, a missing --model. Fills in what
// "auto", 0 and empty stand for where that needs no model. Certificates and keys are read, for whether they
// can be used. Errors are kInvalidArgument and name the flag.
Status resolve_worker_settings(WorkerSettings& settings);

// Makes "cuda" or "cpu" of "auto", by what find_cuda_device() (kernels/backends.h) says. kInvalidArgument
// where "cuda" is not to be had, and for "auto" where there is a GPU that cannot be used, unless allow_cpu.
// REQUIRES: the device is one of those two.
Status choose_device(WorkerSettings& settings, const StatusOr<std::string>& found);

// "float32", "bfloat16", or for "auto": bfloat16 where the checkpoint is in bfloat16 and this CPU multiplies
// it natively (AVX512-BF16); emulated, it is slower than float32. REQUIRES: `dtype` is one of the three.
DType choose_dtype(std::string_view dtype, DType checkpoint, bool cpu_has_bfloat16);
bool cpu_has_bfloat16();

}  // namespace troupe
