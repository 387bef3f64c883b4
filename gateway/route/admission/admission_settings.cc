#include "common/settings/schema.h"
#include "gateway/route/admission/admission.h"

namespace troupe::route {

void describe(SettingsSchema& schema, AdmissionOptions& options) {
  schema
      .add("admission.queue", &options.queue_max,
           "requests that may wait for the workers of a model; more are answered 429")
      .range(0, 1e6)
      .live();
  schema
      .add("admission.queue_timeout_ms", &options.wait_max,
           "longest that one waits before it is answered 503")
      .range(1, 3.6e6)
      .unit("ms")
      .live();
  schema
      .add("admission.fair", &options.fair,
           "let in by priority and in equal shares of API keys and personas, else in order of arrival")
      .live();
  schema.add("admission.requests", &options.total.requests, "at the workers at once; 0: no limit")
      .range(0, 1e6)
      .live();
  schema.add("admission.tokens", &options.total.tokens, "the same in tokens to compute")
      .range(0, 1e12)
      .unit("tokens")
      .live();
  schema
      .add("admission.persona_requests", &options.persona.requests,
           "of one persona at the workers at once; 0: no limit")
      .range(0, 1e6)
      .live();
  schema.add("admission.persona_tokens", &options.persona.tokens, "the same in tokens to compute")
      .range(0, 1e12)
      .unit("tokens")
      .live();
}

}  // namespace troupe::route
