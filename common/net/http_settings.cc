#include "common/net/http_settings.h"

namespace troupe {
namespace {

void set_live(SettingsSchema::Field& field, const HttpLimitSettings& limits) {
  if (limits.live) field.live();
}

}  // namespace

void describe_http_bodies(SettingsSchema& schema, HttpServerOptions& options,
                          const HttpLimitSettings& limits) {
  set_live(schema.add("limits.body_bytes", &options.body_bytes_max, limits.body_bytes.doc)
               .range(1024, limits.body_bytes.most)
               .unit("bytes"),
           limits);
  set_live(schema.add("limits.bodies_bytes", &options.bodies_bytes_max, limits.bodies_bytes.doc)
               .range(1024, limits.bodies_bytes.most)
               .unit("bytes"),
           limits);
}

void describe_http_head(SettingsSchema& schema, HttpServerOptions& options, const HttpLimitSettings& limits) {
  schema.add("limits.header_bytes", &options.header_bytes_max, limits.header_bytes.doc)
      .range(1024, limits.header_bytes.most)
      .unit("bytes");
}

void describe_http_timeouts(SettingsSchema& schema, HttpServerOptions& options,
                            const HttpLimitSettings& limits) {
  const auto add = [&](std::string_view key, std::chrono::milliseconds* timeout, std::string_view doc) {
    set_live(schema.add(key, timeout, doc).range(1, limits.timeout_ms_most).unit("ms"), limits);
  };
  add("limits.header_timeout_ms", &options.header_timeout, "for a whole request head");
  add("limits.body_timeout_ms", &options.body_timeout, "for a whole request body");
  add("limits.idle_timeout_ms", &options.idle_timeout, "between two requests of a connection");
  add("limits.write_timeout_ms", &options.write_timeout, limits.write_timeout_doc);
}

void describe_cors(SettingsSchema& schema, HttpServerOptions& options, const HttpLimitSettings& limits) {
  set_live(schema.add("cors.allowed_origins", &options.cors_origins,
                      "web pages that may ask from elsewhere, by their origins, such as "
                      "http://localhost:8000; *: all"),
           limits);
}

void describe_http_connections(SettingsSchema& schema, HttpServerOptions& options,
                               const HttpLimitSettings& limits) {
  set_live(schema.add("limits.connections", &options.connections_max, limits.connections.doc)
               .range(1, limits.connections.most),
           limits);
}

}  // namespace troupe
