#pragma once

// The memory of the host that a model will take, by its config.json and the options alone: known before a
// byte is loaded, so that what cannot fit is refused at once and not by the kernel after minutes. (An
// accelerator's is known only when the weights are there: load/memory_budget.h.)
//
// Mapped files do not count, as their pages are evicted, nor does memory that is touched seldom (copies of
// logits, block tables). Pure.

#include <cstdint>
#include <string>

#include "common/core/status.h"
#include "kernels/kernels.h"
#include "worker/model/config.h"
#include "worker/model/load/host_memory.h"
#include "worker/model/model.h"

namespace troupe {

// Bytes. Doubles, as what config.json claims may be more than 64 bits count.
struct HostNeed {
  double weights = 0;
  double activations = 0;
  double kv = 0;
  double sum() const { return weights + activations + kv; }
};

struct HostAsk {
  const ModelConfig& config;
  std::string model_dir;
  bool made_up = false;  // the weights, in the type that DummyWeights gives them
  WeightFormat format = WeightFormat::kActivation;
  DType activation = DType::kFloat32;
  Workspace::Limits limits;
  KvLayout kv;
  int64_t block_count = 0;
};
HostNeed host_need(const HostAsk& ask);

// kResourceExhausted: the message has the parts, the sum, what is free, and the option that needs less.
Status check_host_need(const HostAsk& ask, const HostMemory& host);

}  // namespace troupe
