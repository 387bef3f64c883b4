#include "worker/input/prepare_prefix.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "worker/input/encode_text.h"
#include "worker/input/shared_prefix.h"
#include "worker/schedule/block_tables.h"

namespace troupe {

namespace {

ApiResult<std::vector<TokenId>> kept_tokens(const ServedModel& model, const GenerateRequest& beginning) {
  auto ids = common_beginning(model, beginning);
  if (!ids.ok()) return ids.error();
  const std::string_view field = prompt_field(beginning);
  if (auto fault = unknown_token(model, field, *ids)) return *std::move(fault);
  const auto count = static_cast<int32_t>(ids->size());
  // Every request that begins with the prefix has at least one token more.
  if (count >= model.total_count_max) return ApiError::context_length(field, count, model.total_count_max);
  const int32_t least = worth_copying(model.block_size);
  const int32_t rest = count % model.block_size;
  if (rest < least) ids->resize(static_cast<size_t>(count - rest));
  if (!ids->empty()) return ids;
  return ApiError::bad_field(field, "only " + std::to_string(count) +
                                        " tokens of it are the same however it goes on; fewer than " +
                                        std::to_string(least) + " are not worth keeping");
}

}  // namespace

ApiResult<PreparedPrefix> prepare_prefix(const ServedModel& model, std::string_view body,
                                         const RoutingHints& hints) {
  auto request = parse_prefix_request(body, model.api);
  if (!request.ok()) return request.error();
  const GenerateRequest& source = request->source;
  if (source.model != model.name) return ApiError::not_found_model(source.model);
  if (!model.keeps_prefixes) {
    return ApiError::unsupported("", "this worker keeps no prefixes (--no-enable-prefix-caching)");
  }
  auto ids = kept_tokens(model, source);
  if (!ids.ok()) return ids.error();

  PreparedPrefix prepared;
  EngineRequest& engine = prepared.engine;
  const auto count = static_cast<int32_t>(ids->size());
  engine.spec.set = hints.set;
  engine.spec.planned = hints.planned;
  const bool all = source.kind == GenerateRequest::Kind::kChat &&
                   hints.prefix_messages >= static_cast<int64_t>(source.messages.size());
  engine.spec.prefix_count = std::min(count, all ? count : shared_prefix_count(model, source, *ids, hints));
  if (hints.set.is_zero()) engine.spec.prefix_count = 0;
  if (!source.cache_salt.empty()) engine.spec.salt = hash_bytes(source.cache_salt);
  engine.prompt_only = true;
  engine.spec.background = true;
  prepared.ask.hash = chain_hash(chain_hash(engine.spec.salt, model.name), *ids);
  prepared.ask.set = hints.set;
  prepared.ask.tokens = count;
  prepared.ask.pin = request->pin;
  if (request->ttl_s) prepared.ask.ttl = std::chrono::seconds(*request->ttl_s);
  if (request->pin) engine.spec.pin = prepared.ask.hash;
  engine.prompt = std::move(*ids);
  return prepared;
}

}  // namespace troupe
