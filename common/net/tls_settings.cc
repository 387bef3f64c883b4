#include "common/net/tls_settings.h"

#include <limits>

#include "absl/strings/str_cat.h"

namespace troupe {
namespace {

void add_file(SettingsSchema& schema, const std::string& key, std::string* path, const std::string& doc,
              TlsReload reload) {
  SettingsSchema::Field& field = schema.add(key, path, doc);
  if (reload == TlsReload::kOnSighup) field.live();
}

}  // namespace

void describe_tls_listener(SettingsSchema& schema, std::string_view group, TlsFiles& files,
                           TlsReload reload) {
  const std::string name(group);
  add_file(
      schema, name + ".certificate", &files.certificate,
      "PEM file of the certificate clients see, then what leads to its authority; empty: plain HTTP. Read "
      "again on SIGHUP, as the other files",
      reload);
  add_file(schema, name + ".private_key", &files.private_key, "PEM file of its key", reload);
  add_file(schema, name + ".client_ca", &files.ca,
           "PEM file of authorities: clients must bring a certificate of one of them; empty: they need none",
           reload);
}

void describe_tls_client(SettingsSchema& schema, std::string_view group, std::string_view peers,
                         TlsFiles& files, TlsReload reload) {
  const std::string name(group);
  add_file(schema, name + ".ca", &files.ca,
           absl::StrCat("PEM file of the authorities of ", to_absl(peers),
                        " with https:// URLs; empty: the system's. Read again on SIGHUP"),
           reload);
  add_file(schema, name + ".certificate", &files.certificate,
           "PEM file of the certificate to show them; empty: none", reload);
  add_file(schema, name + ".private_key", &files.private_key, "PEM file of its key", reload);
}

StatusOr<std::shared_ptr<const TlsContext>> make_tls_listener(const TlsFiles& files, std::string_view group) {
  if (files.certificate.empty() && files.private_key.empty() && files.ca.empty()) return nullptr;
  return TlsContext::for_server(files, group);
}

void export_tls_expiry(Metrics& metrics, std::string_view program, std::string_view use,
                       const TlsContext* context) {
  const bool ends = context != nullptr && context->expires_at();
  metrics
      .gauge(std::string(program) + "_tls_certificate_expiry_timestamp_seconds",
             "When the certificate in use for new connections ends, or the first of its chain; +Inf without "
             "one.",
             {{"use", std::string(use)}})
      .Set(ends ? static_cast<double>(*context->expires_at()) : std::numeric_limits<double>::infinity());
}

}  // namespace troupe
