#pragma once

// From settings to the objects a worker is built of: the model directory loaded and checked, and every
// setting handed to the part it is for.

#include <map>
#include <memory>
#include <string>

#include "common/core/log.h"
#include "common/core/status.h"
#include "worker/config.h"
#include "worker/engine/engine.h"
#include "worker/engine/step_runner.h"
#include "worker/http/server.h"
#include "worker/input/prompt_pipeline.h"
#include "worker/model/runner.h"
#include "worker/sim_device/fault_injector.h"
#include "worker/text/chat_template.h"
#include "worker/text/tokenizer/tokenizer.h"

namespace troupe {

// Everything read from the model directory. `served` points into the others, which stay where they are when
// this is moved.
struct LoadedModel {
  std::unique_ptr<SimFaults> faults;  // null: a model runs
  std::unique_ptr<StepRunner> runner;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<TokenCache> token_cache;
  std::unique_ptr<DryBreakerCache> breaker_cache;
  std::unique_ptr<GrammarCache> grammar_cache;                          // null where no model runs
  std::unique_ptr<ChatTemplate> chat_template;                          // null where the model has none
  std::unique_ptr<ChatTemplate> tool_template;                          // likewise
  std::map<std::string, std::unique_ptr<ChatTemplate>> more_templates;  // by name
  ServedModel served;
  int32_t block_count = 0;  // of KV memory
  int32_t max_model_len = 0;
};

// REQUIRES: resolved settings. Errors name file, item and reason.
// A worker without a model (device sim) counts its faults in `metrics`.
StatusOr<LoadedModel> load_model(const WorkerSettings& settings, Metrics& metrics, const Logger& log);

// The parts of loading that a worker without a model shares (sim_load.h): tokenizer, template and special
// tokens, of the directory or built in (sim_text.h); and what follows for `served` once they, block_count and
// max_model_len are there.
Status load_text(const std::string& model_dir, LoadedModel& model);
Status load_built_in_text(LoadedModel& model);
void describe_served(const WorkerSettings& settings, LoadedModel& model);

// Options for a model that is computed (any device but sim).
RunnerOptions runner_options(const WorkerSettings& settings, const ModelConfig& config);
Engine::Options engine_options(const WorkerSettings& settings, const LoadedModel& model);
WorkerServer::Options server_options(const WorkerSettings& settings);

}  // namespace troupe
