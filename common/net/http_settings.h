#pragma once

// Describes the limits of an HTTP server (`limits.*`) for both programs. Each program brings its own words
// and maxima, and calls the four functions in the order in which its --help lists the keys. `options` must
// outlive the schema.

#include <string_view>

#include "common/net/http_server.h"
#include "common/settings/schema.h"

namespace troupe {

struct HttpLimitSetting {
  std::string_view doc;
  double most = 0;
};
struct HttpLimitSettings {
  HttpLimitSetting body_bytes, bodies_bytes, header_bytes, connections;
  std::string_view write_timeout_doc;
  double timeout_ms_most = 0;
  bool live = false;  // SIGHUP changes all but header_bytes (see HttpServer::change())
};

// limits.body_bytes, .bodies_bytes
void describe_http_bodies(SettingsSchema& schema, HttpServerOptions& options,
                          const HttpLimitSettings& limits);
// limits.header_bytes
void describe_http_head(SettingsSchema& schema, HttpServerOptions& options, const HttpLimitSettings& limits);
// limits.header_timeout_ms, .body_timeout_ms, .idle_timeout_ms, .write_timeout_ms
void describe_http_timeouts(SettingsSchema& schema, HttpServerOptions& options,
                            const HttpLimitSettings& limits);
// cors.allowed_origins
void describe_cors(SettingsSchema& schema, HttpServerOptions& options, const HttpLimitSettings& limits);
// limits.connections
void describe_http_connections(SettingsSchema& schema, HttpServerOptions& options,
                               const HttpLimitSettings& limits);

}  // namespace troupe
