#include "sim/fleet/sim_request.h"

#include <algorithm>
#include <span>

#include "sim/fleet/sim_gateway.h"
#include "sim/trace/block_names.h"

namespace troupe::sim {

// A trace does not say how long an answer its client allowed, but how long it became: that is the bound
// here.
route::AdmissionRequest SimRequest::admission_request(const route::Router& router) const {
  route::AdmissionSpec spec;
  spec.pool = kModel;
  spec.answer_tokens_max = std::max(1, trace.output_tokens);
  spec.deadline = TimePoint::max();
  return route::admission_request(router, key, flow.decision(), spec);
}

SimNode::NewSimRequest SimRequest::to_node() const {
  SimNode::NewSimRequest out;
  out.id = id;
  out.prompt_tokens = trace.input_tokens + emitted;
  out.prefix_tokens = static_cast<int32_t>(key.prefix_tokens);
  out.new_tokens = std::max(1, trace.output_tokens) - emitted;
  out.set = key.set;
  out.session = key.session;
  out.planned = planned;
  const size_t full = static_cast<size_t>(trace.input_tokens / trace.block_tokens);
  const auto prompt = std::span(trace.blocks).first(std::min(full, trace.blocks.size()));
  out.blocks.resize(prompt.size() + trace.output_blocks.size());
  name_blocks(prompt, out.blocks.data());
  name_blocks(trace.output_blocks, out.blocks.data() + prompt.size());
  return out;
}

route::AnswerProgress SimRequest::progress(bool resumable) const {
  route::AnswerProgress progress;
  progress.started = emitted > 0;
  progress.resumable = resumable;
  progress.tokens = emitted;
  return progress;
}

RequestLine SimRequest::line(TimePoint at, RequestEnd end) const {
  RequestLine out;
  out.number = number;
  out.arrived = arrived.time_since_epoch();
  if (emitted > 0) {
    out.first = first.time_since_epoch();
    out.cached_tokens = found_first;
  }
  out.ended = at.time_since_epoch();
  out.turn = trace.turn;
  out.prompt_tokens = trace.input_tokens;
  out.tokens = emitted;
  out.attempts = flow.attempts();
  out.end = end;
  out.place = place;
  if (node != route::kNoNode) out.simulated_node = static_cast<int32_t>(node);
  if (const route::Candidate* const chosen = flow.chosen(); chosen != nullptr) {
    out.branch = route::branch_name(chosen->branch);
    out.expected_tokens = chosen->expect_cached;
  }
  return out;
}

}  // namespace troupe::sim
