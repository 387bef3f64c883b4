#include "gateway/telemetry/telemetry_settings.h"

#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace troupe {

namespace {

constexpr std::string_view kTracesPath = "/v1/traces";

// A file's path is meant to be none of these.
bool is_switch_word(std::string_view text) {
  constexpr std::array<std::string_view, 10> kWords{"on", "off", "true", "false", "yes",
                                                    "no", "y",   "n",    "1",     "0"};
  return text != kAccessLogOff && std::any_of(kWords.begin(), kWords.end(), [text](std::string_view word) {
           return absl::EqualsIgnoreCase(to_absl(text), to_absl(word));
         });
}

// "http://host:port/path"; without a path the standard one.
Status parse_collector(const std::string& url, SpanExporterOptions& options) {
  const size_t scheme_end = url.find("://");
  const size_t host = scheme_end == std::string::npos ? 0 : scheme_end + 3;
  const size_t path = std::min(url.find('/', host), url.size());
  options.target = url.substr(path);
  if (options.target.size() <= 1) options.target = kTracesPath;
  if (!std::all_of(options.target.begin(), options.target.end(), [](char c) { return c > ' ' && c < 0x7f; }))
    return invalid_argument(absl::StrCat("'", url, "': a path has no spaces: percent-encode it"));
  TROUPE_ASSIGN_OR_RETURN(options.collector, Endpoint::parse(url.substr(0, path)));
  return absl::OkStatus();
}

}  // namespace

void describe(SettingsSchema& schema, TelemetrySettings& t) {
  schema.add("access_log", &t.options.access_log,
             "a line for every request: to this file (opened anew on SIGHUP), stderr, or off");
  describe(schema, t.options.usage);
  schema.add(
      "otlp.endpoint", &t.otlp_endpoint,
      "where spans go, OTLP over HTTP in JSON, such as http://127.0.0.1:4318/v1/traces; empty: nowhere");
  schema.add("otlp.service_name", &t.otlp.service_name, "service.name of the spans");
  schema
      .add("otlp.sample_ratio", &t.options.sample_ratio,
           "of requests without a traceparent of their own, which says itself whether they are sampled")
      .range(0, 1)
      .live();
  schema
      .add("otlp.queue_bytes", &t.otlp.queue_bytes, "of spans that wait for the collector; more are dropped")
      .range(65'536, 1e10)
      .unit("bytes");
  schema.add("otlp.batch_bytes", &t.otlp.batch_bytes, "spans are sent when there are so many")
      .range(1024, 16e6)
      .unit("bytes");
  schema.add("otlp.interval_ms", &t.otlp.interval, "or after this").range(1, 3.6e6).unit("ms");
  schema.add("otlp.timeout_ms", &t.otlp.timeout, "the collector answers within this, or is asked again")
      .range(1, 3.6e6)
      .unit("ms");
}

StatusOr<TelemetryOptions> make_telemetry(const TelemetrySettings& t) {
  TelemetryOptions options = t.options;
  if (options.access_log.empty())
    return invalid_argument("access_log: must be off, stderr, or the path of a file");
  if (is_switch_word(options.access_log))
    return invalid_argument(absl::StrCat("access_log: '", options.access_log,
                                         "' is no file: name one, or stderr; for none leave it out (off). A "
                                         "file of that name is ./",
                                         options.access_log));
  if (t.otlp_endpoint.empty()) return options;
  if (t.otlp.service_name.empty()) return invalid_argument("otlp.service_name: must not be empty");
  options.otlp = t.otlp;
  if (const Status status = parse_collector(t.otlp_endpoint, *options.otlp); !status.ok())
    return annotate(status, "otlp.endpoint");
  TROUPE_ASSIGN_OR_RETURN(auto tls, TlsContext::for_client(TlsFiles(), "otlp"));  // the system's authorities
  options.otlp->tls = std::make_shared<TlsSource>(TlsSource{std::move(tls)});
  return options;
}

}  // namespace troupe
