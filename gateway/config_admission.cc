// The settings of the queue in front of the workers.

#include "gateway/config.h"

namespace troupe {

void describe_admission(GatewaySettings::Admission& a, SettingsSchema& schema) {
  schema
      .add(
          "admission.worker_fill", &a.worker_fill,
          "requests that fill a worker, by its max_num_seqs; the others wait in the gateway. 0: none is full")
      .range(0, 100)
      .live();
  schema.add("admission.worker_requests", &a.worker_requests, "the same as a number; 0: by worker_fill")
      .range(0, 1e6)
      .live();
  schema
      .add("admission.foreign_worker_requests", &a.foreign_worker_requests,
           "of a worker that does not tell its max_num_seqs; 0: it is never full")
      .range(0, 1e6)
      .live();
  schema
      .add("admission.queue", &a.queue,
           "requests that may wait for the workers of a model; more are answered 429")
      .range(0, 1e6)
      .live();
  schema
      .add("admission.queue_timeout_ms", &a.queue_timeout_ms,
           "longest that one waits before it is answered 503")
      .range(1, 3.6e6)
      .unit("ms")
      .live();
  schema
      .add("admission.fair", &a.fair,
           "let in by priority and in equal shares of API keys and personas, else in order of arrival")
      .live();
  schema.add("admission.requests", &a.requests, "at the workers at once; 0: no limit").range(0, 1e6).live();
  schema.add("admission.tokens", &a.tokens, "the same in tokens to compute")
      .range(0, 1e12)
      .unit("tokens")
      .live();
  schema
      .add("admission.persona_requests", &a.persona_requests,
           "of one persona at the workers at once; 0: no limit")
      .range(0, 1e6)
      .live();
  schema.add("admission.persona_tokens", &a.persona_tokens, "the same in tokens to compute")
      .range(0, 1e12)
      .unit("tokens")
      .live();
}

StatusOr<AdmissionQueueOptions> make_admission_queue(const GatewaySettings::Admission& a) {
  if (a.worker_fill > 0 && a.worker_fill < 1)
    return invalid_argument(
        "admission.worker_fill: must be 0 or at least 1, else workers idle while requests wait");
  AdmissionQueueOptions options;
  options.room.fill = a.worker_fill;
  options.room.worker_requests = a.worker_requests;
  options.room.foreign_requests = a.foreign_worker_requests;
  options.admission.queue_max = static_cast<size_t>(a.queue);
  options.admission.wait_max = std::chrono::milliseconds(a.queue_timeout_ms);
  options.admission.fair = a.fair;
  options.admission.total = {a.requests, a.tokens};
  options.admission.persona = {a.persona_requests, a.persona_tokens};
  return options;
}

}  // namespace troupe
