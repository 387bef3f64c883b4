#include "worker/sim_load.h"

#include <algorithm>
#include <utility>

#include "worker/schedule/node_profile.h"
#include "worker/sim_device/sim_runner.h"
#include "worker/sim_device/sim_text.h"

namespace troupe {

StatusOr<LoadedModel> load_sim_model(const WorkerSettings& settings, Metrics& metrics, const Logger& log) {
  TROUPE_ASSIGN_OR_RETURN(const NodeProfile profile, load_node_profile(settings.sim_profile));
  LoadedModel model;
  const Status status = settings.runner.model_dir.empty() ? load_built_in_text(model)
                                                          : load_text(settings.runner.model_dir, model);
  TROUPE_RETURN_IF_ERROR(status);

  SimRunner::Options options;
  options.costs = profile.costs;
  options.speed = settings.sim_speed;
  TROUPE_ASSIGN_OR_RETURN(options.filler, filler_tokens(*model.tokenizer));
  model.faults = std::make_unique<SimFaults>(metrics);
  model.runner = std::make_unique<SimRunner>(std::move(options), *model.faults);
  model.block_count = static_cast<int32_t>(settings.runner.kv_cache_tokens / settings.scheduler.block_size);
  model.max_model_len = settings.scheduler.max_model_len;

  auto& served = model.served;
  served.config.vocab_size = model.tokenizer->vocab_size();
  served.config.max_position_embeddings = settings.scheduler.max_model_len;
  served.answer_count_mean = settings.sim_answer_tokens;
  describe_served(settings, model);
  log.info("sim_loaded",
           {{"profile", profile.name},
            {"name", served.name},
            {"words", settings.runner.model_dir.empty() ? "built in" : settings.runner.model_dir},
            {"kv_blocks", model.block_count},
            {"speed", settings.sim_speed}});
  return model;
}

}  // namespace troupe
