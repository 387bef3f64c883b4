#pragma once

// The settings of the proxy.

#include "common/settings/schema.h"
#include "gateway/proxy/proxy.h"

namespace troupe {

// Describes the time-outs of requests and streams, retry.*, limits.requests and .tokenize_requests. `options`
// must outlive the schema.
void describe(SettingsSchema& schema, ProxyOptions& options);

}  // namespace troupe
