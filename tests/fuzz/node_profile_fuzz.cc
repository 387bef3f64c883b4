// Inputs of a worker without a model: its node profile (YAML) and the faults it shall have (the body of POST
// /sim/faults). Either is refused, or every number is one that a step's time can be made of.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/json/json.h"
#include "worker/schedule/node_profile.h"
#include "worker/sim_device/fault_injector.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check_faults(std::string_view body) {
  const auto faults = troupe::parse_sim_faults(body);
  if (!faults.ok()) {
    require(troupe::parse_json(faults.error().to_json()).ok());
    return;
  }
  const troupe::SimFaultSettings& f = faults.value();
  require(f.stall_s >= 0 && f.stall_s <= 600 && f.slow_factor >= 1 && f.slow_factor <= 1000);
  require(f.drop_rate >= 0 && f.drop_rate <= 1 && f.error_rate >= 0 && f.error_rate <= 1);
  require(f.error_status >= 500 && f.error_status <= 599 && f.seed >= 0);
  const auto again = troupe::parse_sim_faults(f.to_json());
  require(again.ok() && again.value().to_json() == f.to_json());
}

void check_profile(std::string_view yaml) {
  const auto profile = troupe::parse_node_profile(yaml, "node.yaml");
  if (!profile.ok()) {
    require(profile.status().message().find("node.yaml") == 0);
    return;
  }
  require(profile->kv_cache_tokens >= profile->block_size && profile->block_size > 0);
  require(profile->max_num_seqs > 0 && profile->max_num_batched_tokens > 0 && profile->max_model_len > 0);
  troupe::StepLoad load;
  load.add_decode(profile->max_model_len);
  load.add_prefill(profile->max_model_len, profile->max_num_batched_tokens);
  require(troupe::step_duration(profile->costs, load) > troupe::Duration::zero());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_faults(text);
  check_profile(text);
  return 0;
}
