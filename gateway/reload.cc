#include "gateway/reload.h"

#include <string>

#include "common/net/file_limit.h"

namespace troupe {

void Reload::run(Gateway& gateway) {
  gateway.reopen_logs();  // whatever the settings are worth: log files are rotated by this signal
  std::vector<SettingsSchema::Value> fresh;
  if (const Status status = take(gateway, fresh); !status.ok()) {
    log_.error("not_reloaded", {{"why", to_std(status.message())}});
  } else {
    log_changes(gateway, fresh);
  }
}

Status Reload::take(Gateway& gateway, std::vector<SettingsSchema::Value>& fresh) {
  GatewaySettings settings;
  SettingsSchema schema("troupe-gateway", "");
  describe_settings(settings, schema);
  TROUPE_RETURN_IF_ERROR(schema.parse(argc_, argv_).status());
  TROUPE_ASSIGN_OR_RETURN(const GatewayConfig config, make_config(settings));
  fresh = schema.values();
  if (const Status status = raise_file_limit(files_needed(config)); !status.ok())
    log_.warn("file_limit_low", {{"why", to_std(status.message())}});
  return gateway.change(config);
}

void Reload::log_changes(const Gateway& gateway, const std::vector<SettingsSchema::Value>& fresh) {
  std::string changed;
  for (size_t i = 0; i < values_.size(); ++i) {
    if (values_[i].text == fresh[i].text) continue;
    if (!values_[i].live) {
      log_.warn("not_changed", {{"key", values_[i].key}, {"why", "it takes a restart"}});
      continue;
    }
    changed += (changed.empty() ? "" : ",") + values_[i].key;
    values_[i] = fresh[i];
  }
  log_.info("reloaded", {{"api_keys", gateway.api_key_count()}, {"changed", changed}});
}

}  // namespace troupe
