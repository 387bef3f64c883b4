#include "gateway/proxy/proxy_settings.h"

namespace troupe {
namespace {

void describe_retry(SettingsSchema& schema, route::RetryOptions& options) {
  schema.add("retry.attempts_max", &options.attempts_max, "tries a request gets, the first included")
      .range(1, 16)
      .live();
  schema.add("retry.budget_ratio", &options.budget_ratio, "retries every request earns").range(0, 1).live();
  schema.add("retry.budget_per_s", &options.budget_per_s, "retries earned a second besides")
      .range(0, 1e6)
      .live();
  schema.add("retry.budget_max", &options.budget_max, "retries saved up, at most").range(0, 1e6).live();
}

}  // namespace

void describe(SettingsSchema& schema, ProxyOptions& options) {
  schema
      .add("request_timeout_secs", &options.request_timeout,
           "longest a request may take; x-request-timeout-ms may ask for less")
      .range(1, 86'400)
      .unit("seconds")
      .live();
  schema
      .add("stream_heartbeat_timeout_ms", &options.silence_max,
           "a worker whose stream says nothing for this long hangs; another goes on")
      .range(200, 3.6e6)
      .unit("ms")
      .live();
  schema
      .add("foreign_worker_silence_timeout_ms", &options.foreign_silence_max,
           "a worker of another kind that has sent nothing of an answer for this long is given up once a "
           "probe "
           "fails; 0: once probes have found it dead")
      .range(0, 3.6e6)
      .unit("ms")
      .live();
  schema
      .add("foreign_worker_stall_timeout_ms", &options.foreign_stall_max,
           "an answer that one has begun and brings nothing more of for this long ends with an error; 0: "
           "never")
      .range(0, 3.6e6)
      .unit("ms")
      .live();
  schema
      .add("sse_keepalive_ms", &options.sse_keepalive,
           "a stream that brings nothing for this long gets a comment, also before it begins; 0: never")
      .range(0, 3.6e6)
      .unit("ms")
      .live();
  describe_retry(schema, options.retry);
  schema
      .add("retry.resend_to_foreign", &options.resend_to_foreign,
           "what a worker of another kind may have begun is sent again to the next; x-troupe-retry may say")
      .live();
  schema.add("limits.requests", &options.requests_max, "requests at once; more are answered 429")
      .range(1, 1e6)
      .live();
  schema
      .add("limits.tokenize_requests", &options.text_requests_max,
           "of /tokenize and /detokenize at once; more are answered 429")
      .range(1, 1e6)
      .live();
}

}  // namespace troupe
