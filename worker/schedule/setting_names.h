#pragma once

// The names by which the worker and the simulator set the scheduler's choices.

#include "common/settings/schema.h"
#include "worker/schedule/scheduler.h"

namespace troupe {

inline constexpr EnumName<Batching> kBatchingNames[] = {
    {"merged", Batching::kMerged}, {"separate", Batching::kSeparate}, {"static", Batching::kStatic}};
inline constexpr EnumName<OutputReserve> kOutputReserveNames[] = {
    {"none", OutputReserve::kNone}, {"predicted", OutputReserve::kPredicted}, {"max", OutputReserve::kMax}};

}  // namespace troupe
