#pragma once

// The load of a worker of another kind, from its own /metrics: vLLM's, SGLang's and llama.cpp's names, in
// Prometheus' text form. A pure function, linear in the text.

#include <optional>
#include <string_view>

#include "gateway/route/fleet/load_tracker.h"

namespace troupe {

// Requests running and waiting, tokens computed, KV cache in tokens; zero where no line has it. Engines and
// ranks of one server (lines that differ in labels) are added up. nullopt: no such names are in the text.
std::optional<route::NodeReport> report_of_metrics(std::string_view text);

}  // namespace troupe
