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

route::AdmissionSpec Proxy::admission_spec(const RoutedRequest& routed, const ApiClient* client,
                                           TimePoint deadline) {
  route::AdmissionSpec spec;
  spec.pool = routed.model;
  if (client != nullptr) spec.key = client->admission();
  spec.priority = priority_of(routed, client);
  spec.answers = routed.choices;
  spec.answer_tokens_max = routed.answer_tokens_max;
  spec.deadline = deadline;
  return spec;
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
      route::admission_request(router_, context.routed.key, context.flow.decision(),
                               admission_spec(context.routed, context.client.get(), context.deadline.at)));
  if (!admission_ticket.ok()) return admission_ticket.error();
  context.admission_ticket = std::move(*admission_ticket);
  return true;
}

Task<ApiResult<bool>> Proxy::wait_in_queue(RequestContext& context) {
  const TimePoint arrived = clock_.now();
  context.waited = true;
  context.phases.pause(arrived);
  if (context.request_record != nullptr) context.request_record->queued = arrived;
  ApiResult<bool> go = co_await context.admission_ticket->wait();
  const TimePoint now = clock_.now();
  context.phases.enter(Phase::kChoose, now);
  if (context.request_record != nullptr) context.request_record->let_in = now;
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
