#include "gateway/proxy/admission_stage.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "gateway/access/end_user.h"

namespace troupe {

namespace {

// A request may be put off by its client, but not put before what its API key grants.
int32_t priority_of(const RoutedRequest& routed, const ApiClient* client) {
  const int32_t earliest = client == nullptr ? 0 : client->priority();
  return std::min(std::max(routed.priority, earliest), route::kPriorityMax);
}

route::AdmissionSpec admission_spec(const RoutedRequest& routed, const ApiClient* client,
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

// About what it will use: all that it may answer, where it says so.
int64_t estimate(const route::Router& router, const RoutedRequest& routed) {
  const int64_t usual = routed.prefills ? 0 : router.usual_answer_tokens();
  // (Of the client's numbers each is within its type, their product need not be.)
  constexpr int64_t kAnswerMax = 1'000'000'000;
  const int64_t answer = std::min(routed.answer_tokens_max.value_or(usual), kAnswerMax);
  return std::max<int64_t>(router.prompt_tokens(routed.key) + routed.choices * answer, 1);
}

}  // namespace

bool AdmissionStage::has_account(const HttpRequest& request, RequestContext& context) {
  if (!core_.options.names_users || core_.accounts == nullptr) return false;
  const std::string& own_header = core_.options.accounts.user_header;
  context.account.end_user = end_user_of(request.headers, own_header, context.routed.end_user);
  context.account.visit =
      core_.accounts->visit(context.client, context.account.end_user, context.account.spent);
  return context.account.visit != nullptr;
}

Task<ApiResult<bool>> AdmissionStage::take_holds(const HttpRequest& request, RequestContext& context) {
  const int64_t tokens = costs_tokens(request, context.routed) ? estimate(core_.router, context.routed) : 0;
  return core_.accounts->arrive(*context.account.visit, tokens);
}

ApiResult<bool> AdmissionStage::arrive(RequestContext& context) {
  if (!context.routed.takes_room()) {
    const TimePoint now = core_.clock.now();
    const auto most = static_cast<int64_t>(core_.options.text_requests_max);
    if (!text_requests_.enter(most, now)) {
      return ApiError::overloaded(
          absl::StrCat("this gateway has ", most, " requests for tokens at once, its limit"),
          route::retry_after_s(text_requests_.reject(now)));
    }
    context.permits.text.emplace(text_requests_, core_.clock);
    return true;
  }
  auto admission_ticket = queue_.arrive(
      route::admission_request(core_.router, context.routed.key, context.flow.decision(),
                               admission_spec(context.routed, context.client.get(), context.deadline.at)));
  if (!admission_ticket.ok()) return admission_ticket.error();
  context.admission_ticket = std::move(*admission_ticket);
  return true;
}

Task<ApiResult<bool>> AdmissionStage::wait(RequestContext& context) {
  const TimePoint arrived = core_.clock.now();
  context.waited = true;
  context.phases.pause(arrived);
  context.record.queued = arrived;
  ApiResult<bool> go = co_await context.admission_ticket->wait();
  const TimePoint now = core_.clock.now();
  context.phases.enter(Phase::kChoose, now);
  context.record.let_in = now;
  co_return go;
}

bj::object AdmissionStage::explain(const RoutedRequest& routed, const route::Decision& decision,
                                   const RequestContext& context) const {
  const TimePoint deadline = core_.clock.now() + core_.options.request_timeout;
  const auto request = route::admission_request(core_.router, routed.key, decision,
                                                admission_spec(routed, context.client.get(), deadline));
  const auto preview = queue_.preview(request);
  const route::Admission& admission = queue_.admission();
  bj::object out;
  out["outcome"] = bj::string(route::admission_outcome_name(preview.answer.outcome));
  out["wait_s"] = std::chrono::duration<double>(preview.answer.wait).count();
  out["api_key"] = context.client == nullptr ? bj::value(nullptr) : bj::value(context.client->name());
  out["priority"] = request.priority;
  out["tokens"] = request.tokens;
  out["room"] = preview.room == route::kEndlessRoom ? bj::value(nullptr) : bj::value(preview.room);
  out["running"] = admission.running();
  out["running_tokens"] = admission.running_tokens();
  out["waiting"] = admission.waiting();
  return out;
}

}  // namespace troupe
