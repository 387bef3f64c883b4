#include "sim/fleet/trace_keys.h"

#include <algorithm>
#include <string_view>

#include "sim/trace/block_names.h"

namespace troupe::sim {

namespace {

constexpr size_t kSessionsRemembered = 1 << 20;

// The name of a set or a session; none where the trace says none.
Hash128 name_of(uint64_t id) {
  return id == 0 ? Hash128{} : hash_bytes({reinterpret_cast<const char*>(&id), sizeof id});
}

}  // namespace

TraceKeys::TraceKeys(const route::ExactResidency& residency)
    : residency_(residency), sessions_(kSessionsRemembered) {}

void TraceKeys::look_ahead(const TraceRequest& next) {
  sessions_.prefetch(next.session);
  next_set_ = name_of(next.set);
  next_session_ = name_of(next.session);
  residency_.index.prefetch(next_session_);
  residency_.index.prefetch(next_set_);
}

void TraceKeys::read(const TraceRequest& request, const route::Router& router, route::PrefixKey& key) const {
  key.set = next_set_;
  key.session = next_session_;
  key.session_source = request.session != 0 ? route::SessionSource::kHeader : route::SessionSource::kNone;
  key.prompt_tokens = request.input_tokens;
  key.prompt_bytes = static_cast<size_t>(request.input_tokens) * 4;
  key.prefix_tokens = request.prefix_tokens;
  key.prefix_bytes = static_cast<size_t>(request.prefix_tokens) * 4;
  key.history_tokens =
      request.session == 0 ? 0 : std::min(sessions_.tokens(request.session), request.input_tokens - 1);
  key.history_bytes = static_cast<size_t>(key.history_tokens) * 4;
  key.anchors.clear();
  key.refined = key.displaced = false;
  if (request.set != 0 && request.session != 0) return;
  // Nothing names the conversation, or the persona: it is found by its blocks, as a live gateway would.
  const size_t full = static_cast<size_t>(request.input_tokens / request.block_tokens);
  for (size_t i = 0; i < std::min(full, request.blocks.size()); ++i) {
    const int64_t tokens = static_cast<int64_t>(i + 1) * request.block_tokens;
    key.anchors.push_back({block_name(request.blocks[i]), static_cast<size_t>(tokens) * 4, tokens});
  }
  if (request.set == 0) router.refine(key);
}

void TraceKeys::answered(const TraceRequest& request, int32_t answer_tokens) {
  if (request.session != 0) sessions_.set(request.session, request.input_tokens + answer_tokens);
}

}  // namespace troupe::sim
