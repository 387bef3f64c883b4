#include "gateway/proxy/admission_queue.h"

#include <boost/asio/redirect_error.hpp>

#include "absl/strings/str_cat.h"

namespace troupe {

using route::AdmissionOutcome;

AdmissionQueue::AdmissionQueue(const AdmissionQueueOptions& options, const Parts& parts)
    : executor_(parts.executor),
      look_again_(parts.executor),
      router_(parts.router),
      metrics_(parts.metrics),
      clock_(parts.clock),
      controller_(options),
      queued_(parts.metrics.histogram("troupe_gateway_queue_seconds",
                                      "Time in the queue of requests that waited, let in or not.",
                                      kTtftBuckets)),
      tokens_(
          parts.metrics.gauge("troupe_gateway_tokens_in_flight",
                              "Tokens to compute, as guessed, of requests let in and not answered yet.")) {
  for (size_t i = 0; i < length_.size(); ++i) {
    length_[i] =
        &metrics_.gauge("troupe_gateway_queue_length", "Requests that wait, by priority (lower is earlier).",
                        {{"priority", std::to_string(route::kPriorityMin + static_cast<int>(i))}});
  }
  for (size_t i = static_cast<size_t>(AdmissionOutcome::kQueueFull); i < refused_.size(); ++i) {
    const auto reason = route::admission_outcome_name(static_cast<AdmissionOutcome>(i));
    refused_[i] =
        &metrics_.counter("troupe_gateway_queue_refused_total", "Requests not let in to the workers, by why.",
                          {{"reason", std::string(reason)}});
  }
}

AdmissionQueue::AdmissionTicket::~AdmissionTicket() {
  if (timer_) room_.waiting_.erase(ticket_);
  room_.controller_.leave(ticket_, tokens_, room_.clock_.now());
  room_.notify();
}

ApiResult<std::unique_ptr<AdmissionQueue::AdmissionTicket>> AdmissionQueue::arrive(
    const route::AdmissionRequest& request) {
  const auto answer = controller_.arrive(request, workers(), clock_.now());
  if (answer.ticket == 0) return refusal(answer.outcome, answer.wait);
  std::unique_ptr<AdmissionTicket> admission_ticket(
      new AdmissionTicket(*this, answer.ticket, request.deadline));
  if (answer.outcome == AdmissionOutcome::kWaiting) {
    admission_ticket->outcome_ = answer.outcome;
    admission_ticket->timer_.emplace(executor_);
    waiting_.emplace(answer.ticket, admission_ticket.get());
    if (admission().waiting() == 1) look_again_.wake();
  }
  notify();
  return admission_ticket;
}

Task<ApiResult<bool>> AdmissionQueue::AdmissionTicket::wait() {
  // An outcome cancels its timer; until then the tick notices the ends of other requests.
  while (waits()) {
    timer_->expires_at(deadline_);
    boost::system::error_code error;
    co_await timer_->async_wait(asio::redirect_error(use_task, error));
    const auto cancelled = co_await asio::this_coro::cancellation_state;
    if (cancelled.cancelled() != asio::cancellation_type::none)
      throw boost::system::system_error(asio::error::operation_aborted);
    room_.notify();
  }
  if (outcome_ != AdmissionOutcome::kAdmitted) co_return room_.refusal(outcome_, come_back_);
  co_return true;
}

Task<void> AdmissionQueue::look_after() {
  while (true) {
    const TimePoint soon = std::chrono::steady_clock::now() + route::AdmissionController::kLookEvery;
    const TimePoint next_look = admission().waiting() > 0 ? soon : TimePoint::max();
    co_await look_again_.sleep_until(next_look);
    controller_.look(workers(), clock_.now());
    notify();
  }
}

void AdmissionQueue::notify() {
  for (const auto& event : controller_.advance(clock_.now())) {
    queued_.Observe(std::chrono::duration<double>(event.waited).count());
    const auto found = waiting_.find(event.ticket);
    if (found == waiting_.end()) continue;
    AdmissionTicket& admission_ticket = *found->second;
    admission_ticket.outcome_ = event.outcome;
    admission_ticket.come_back_ = event.wait;
    admission_ticket.timer_->cancel();
  }
  show();
}

void AdmissionQueue::show() {
  tokens_.Set(static_cast<double>(admission().running_tokens()));
  const bool waits = admission().waiting() > 0;
  if (!waits && !length_shown_) return;
  length_shown_ = waits;
  for (size_t i = 0; i < length_.size(); ++i) {
    const size_t waiting = admission().waiting(route::kPriorityMin + static_cast<int32_t>(i));
    length_[i]->Set(static_cast<double>(waiting));
  }
}

void AdmissionQueue::drain(Duration within) {
  controller_.drain(clock_.now() + within);
  notify();
}

ApiError AdmissionQueue::refusal(AdmissionOutcome outcome, Duration come_back) {
  refused_[static_cast<size_t>(outcome)]->Increment();
  const auto seconds = static_cast<int>(std::chrono::ceil<std::chrono::seconds>(come_back).count());
  ApiError error = ApiError::overloaded("", seconds);
  switch (outcome) {
    case AdmissionOutcome::kAdmitted:
    case AdmissionOutcome::kWaiting:
      break;
    case AdmissionOutcome::kQueueFull:
    case AdmissionOutcome::kPushedOut:
      error.message = absl::StrCat("all workers are busy, and ", admission().waiting(),
                                   " requests wait already; ask again in ", seconds, " s");
      break;
    case AdmissionOutcome::kKeyQueueFull:
      error.code = "rate_limit_exceeded";
      error.message =
          "this API key has as many requests waiting as it may have; ask again when one is answered";
      break;
    case AdmissionOutcome::kWouldBeLate:
      error.message = absl::StrCat("all workers are busy, and this request's turn would come in some ",
                                   seconds, " s, after its time is over");
      break;
    case AdmissionOutcome::kTimedOut:
      error = ApiError::unavailable(
          "no worker had room for this request for as long as one may wait; ask again later");
      error.retry_after_s = seconds;
      break;
    case AdmissionOutcome::kDeadline:
      error = ApiError::deadline("the request's time was over before a worker had room for it");
      break;
    case AdmissionOutcome::kDrained:
      error = ApiError::unavailable("this gateway is shutting down; ask again, another will answer");
      break;
  }
  error.http_status = route::admission_http_status(outcome);
  return error;
}

}  // namespace troupe
