#pragma once

// Nodes that cannot answer a request are taken out of its order: some do not know its path, and behind one
// model's name nodes may have contexts of different lengths. Applied to a policy's order, whatever the
// policy.

#include "gateway/route/policy/policy.h"

namespace troupe::route {

// Takes out of `order` the nodes that cannot answer the request. Where none is left, the nodes that can come
// in by their load. A prompt is estimated: if it seems too long for all, those with the longest context stay,
// who may know better.
void keep_fitting(const PolicyInput& input, CandidateOrder& order);

}  // namespace troupe::route
