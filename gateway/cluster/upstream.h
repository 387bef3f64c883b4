#pragma once

// A worker as it is configured: where it is, and how it is asked. Most have no more than a URL; one that is
// not ours (vLLM, llama.cpp, a cloud's endpoint) may want a key, have its own names for models, its own
// authorities, or stand behind a path.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/api/api.h"
#include "common/net/http_client.h"

namespace troupe {

enum class UpstreamKind : uint8_t {
  kAuto,    // as its probes tell
  kTroupe,  // a worker of ours, and nothing else
  kOpenai,  // another server: it is not asked what only ours answer
};

struct Upstream {
  Upstream() = default;
  Upstream(Endpoint where) : endpoint(std::move(where)) {}  // one that wants nothing but its address

  // Parses a worker's URL: http or https, host and port, perhaps a path ("/openai", put before every path; an
  // API's own "/v1" at its end is left out) and credentials ("user:password@", sent as Basic authorization).
  // Errors describe the fault, and never show the credentials.
  static StatusOr<Upstream> parse(std::string_view url);

  // "host:port", and the path; of one at an address of its own "host:port/address".
  std::string id() const;
  std::string url() const { return endpoint.url() + path; }  // without credentials
  // Its own name for a model that clients call `model`.
  const std::string& name_of(const std::string& model) const;
  // Its models under clients' names, among those that it lists, a `m:latest` also as `m`; empty: none of
  // `models` is there.
  std::vector<ModelCard> served(std::vector<ModelCard> listed) const;
  // The same where it lists nothing (it has no /v1/models): all of `models`.
  std::vector<ModelCard> served_unlisted() const;
  // The worker at one of the addresses of a name (`each`).
  Upstream at(const std::string& one) const;
  // It is reached and asked in the same way; TLS files may have been renewed.
  bool same_as(const Upstream& other) const;
  bool is_plain() const { return same_as(Upstream(endpoint)); }  // has nothing but an address

  Endpoint endpoint;
  std::string address;        // where it is, of those that the host's name has; empty: whichever
  bool each = false;          // no worker: every address of the host's name is one (at())
  std::string path;           // before every path of the API; empty: none
  std::string authorization;  // of all requests and probes; empty: the client's own. A secret
  std::string key_header = "authorization";  // that has it
  UpstreamKind kind = UpstreamKind::kAuto;
  double weight = 1;  // its share of the load, against the others'
  std::map<std::string, std::string>
      models;                       // clients' names to its own; empty: all that it serves, as it is
  bool refuses_link_local = false;  // its name may not lead there (HttpClientOptions)
  std::string tls_ca;
  bool insecure_skip_verify = false;
  std::shared_ptr<TlsSource> tls;  // null: the fleet's
};

}  // namespace troupe
