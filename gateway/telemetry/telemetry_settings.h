#pragma once

// The settings of the access log and of spans.

#include <optional>
#include <string>

#include "common/core/status.h"
#include "common/settings/schema.h"
#include "gateway/telemetry/access_log.h"
#include "gateway/telemetry/span_exporter.h"
#include "gateway/telemetry/usage_export.h"

namespace troupe {

struct TelemetryOptions {
  std::string access_log = std::string(kAccessLogOff);  // or kAccessLogStderr, or a file's path
  double sample_ratio = 1;
  UsageOptions usage;
  std::optional<SpanExporterOptions> otlp;  // none: no spans
};

struct TelemetrySettings {
  TelemetryOptions options;
  std::string otlp_endpoint;  // a URL; empty: no spans
  SpanExporterOptions otlp;
};

// Describes access_log and otlp.*. `settings` must outlive the schema.
void describe(SettingsSchema& schema, TelemetrySettings& settings);
// Errors name the key.
StatusOr<TelemetryOptions> make_telemetry(const TelemetrySettings& settings);

}  // namespace troupe
