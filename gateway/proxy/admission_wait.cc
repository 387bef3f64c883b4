// The queue in front of the workers, as a request meets it (admission_queue.h), and what of it the worker is
// told.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "gateway/proxy/json_patch.h"
#include "gateway/proxy/proxy.h"

namespace troupe {

namespace {

// A request may be put off by its client, but not put before what its API key grants.
int32_t priority_of(const RoutedRequest& routed, const ApiClient* client) {
  const int32_t earliest = client == nullptr ? 0 : client->priority();
  return std::min(std::max(routed.priority, earliest), route::kPriorityMax);
}

}  // namespace

// Of a request that is decided on: what its first candidate will have to compute, as far as is known.
route::AdmissionRequest Proxy::admission_of(const RoutedRequest& routed, const route::Decision& decision,
                                            const ApiClient* client, TimePoint deadline) const {
  route::AdmissionRequest request;
  request.pool = routed.model;
  if (client != nullptr) request.key = client->admission();
  request.persona = routed.key.set;
  request.priority = priority_of(routed, client);
  const int64_t cached = decision.order.empty() ? 0 : decision.order[0].expect_cached;
  const int64_t prompt = std::max<int64_t>(router_.prompt_tokens(routed.key) - cached, 1);
  const int64_t usual = router_.usual_answer_tokens();
  request.tokens = prompt + routed.choices * std::min(usual, routed.answer_tokens_max.value_or(usual));
  request.answers = routed.choices;
  request.deadline = deadline;
  return request;
}

// Text in only (tokenize): the worker's batch has no part in it, but its threads do.
ApiResult<bool> Proxy::ask_in(RequestContext& context) {
  if (!context.routed.generates && !context.routed.prefills) {
    const TimePoint now = clock_.now();
    const auto most = static_cast<int64_t>(options_.text_requests_max);
    if (!text_places_.enter(most, now)) {
      return ApiError::overloaded(
          absl::StrCat("this gateway has ", most, " requests for tokens at once, its limit"),
          route::retry_after_s(text_places_.reject(now)));
    }
    context.text.emplace(text_places_, clock_);
    return true;
  }
  auto admission_ticket = admission_queue_.arrive(
      admission_of(context.routed, context.decision, context.client.get(), context.deadline.at));
  if (!admission_ticket.ok()) return admission_ticket.error();
  context.admission_ticket = std::move(*admission_ticket);
  return true;
}

// What was decided on arrival knows nothing of what has happened since.
Task<ApiResult<bool>> Proxy::wait_in_queue(RequestContext& context) {
  const TimePoint arrived = clock_.now();
  context.phases.pause(arrived);
  if (context.request_record != nullptr) context.request_record->queued = arrived;
  ApiResult<bool> go = co_await context.admission_ticket->wait();
  const TimePoint now = clock_.now();
  context.phases.enter(Phase::kChoose, now);
  if (context.request_record != nullptr) context.request_record->let_in = now;
  if (!go.ok()) co_return go;
  context.decision = router_.decide(context.routed.key, context.routed.model, now);
  if (context.decision.order.empty()) co_return no_candidate(context.routed.model);
  co_return go;
}

// The body says what the client may not decide alone: a tenant's salt, and a priority no earlier than its
// key's.
void Proxy::rewrite(const HttpRequest& request, RequestContext& context) {
  const RoutedRequest& routed = context.routed;
  std::vector<JsonPatch> members;
  if (!routed.salt.empty()) {
    JsonPatch salt{"cache_salt", {}};
    append_json_string(salt.json, routed.salt);
    members.push_back(std::move(salt));
  }
  const int32_t earliest = context.client == nullptr ? routed.priority : context.client->priority();
  // (A worker's default is not written out: some refuse the field.)
  if (routed.priority < std::min(earliest, 0)) members.push_back({"priority", absl::StrCat(earliest)});
  if (!members.empty()) context.body = with_members(request.body, members);
}

std::string_view Proxy::body_for_worker(const HttpRequest& request, const RequestContext& context) {
  return context.body.empty() ? std::string_view(request.body) : std::string_view(context.body);
}

}  // namespace troupe
