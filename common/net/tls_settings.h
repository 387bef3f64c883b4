#pragma once

// TLS settings shared by both programs: `tls` of a listener, `upstream_tls` and the like of a client.

#include <string_view>

#include "common/core/metrics.h"
#include "common/net/tls.h"
#include "common/settings/schema.h"

namespace troupe {

enum class TlsReload { kNever, kOnSighup };

// Describes <group>.certificate, .private_key, .client_ca. `files` outlives the schema.
void describe_tls_listener(SettingsSchema& schema, std::string_view group, TlsFiles& files, TlsReload reload);
// Describes <group>.ca, .certificate, .private_key, for connections to `peers`.
void describe_tls_client(SettingsSchema& schema, std::string_view group, std::string_view peers,
                         TlsFiles& files, TlsReload reload);

// Returns null if no file is named: plain TCP.
StatusOr<std::shared_ptr<const TlsContext>> make_tls_listener(const TlsFiles& files, std::string_view group);

// Sets <program>_tls_certificate_expiry_timestamp_seconds{use} to the expiry of the context's first
// certificate, or to +Inf without one (or a null context), so that an alert always finds the metric.
void export_tls_expiry(Metrics& metrics, std::string_view program, std::string_view use,
                       const TlsContext* context);

}  // namespace troupe
