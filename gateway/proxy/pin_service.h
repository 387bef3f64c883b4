#pragma once

// Pins of clients as POST and GET /v1/prefixes see them: what one owner may pin and for how long, and the
// record of what is pinned, from which it is computed anew where a worker lost it (cluster/pin_reconciler.h).
// The keys of a tenant are one owner, a key without a tenant is one, and so are all clients of a gateway
// without keys, whose pins the workers alone bound.

#include <string>
#include <string_view>
#include <vector>

#include "common/json/json.h"
#include "gateway/proxy/proxy_core.h"
#include "gateway/proxy/replies.h"
#include "gateway/proxy/request_context.h"

namespace troupe {

class PinService {
 public:
  explicit PinService(ProxyCore& core) : core_(core) {}

  // Names the client's pins; empty: the gateway has no keys.
  static std::string owner_of(const RequestContext& context);
  // May the request pin? Writes the time that it lasts into the body where it names none.
  ApiResult<bool> allow(const HttpRequest& request, RequestContext& context) const;
  // Workers have computed it: `answer` is the first one's. The last request for a prefix says whether it is
  // pinned.
  struct Made {
    bj::object answer;
    const std::vector<route::NodeIndex>& nodes;
  };
  void keep(const HttpRequest& request, const RequestContext& context, const Made& made) const;
  bool erase(std::string_view id, const RequestContext& context) const;  // false: it was not pinned
  struct Holders {
    bool client = false, others = false;
  };
  // That hold the client's own pin.
  std::vector<route::NodeIndex> nodes_of(std::string_view id, const RequestContext& context) const;
  Holders holders(std::string_view id, const RequestContext& context) const;  // who has it pinned
  // {"object": "list", "data": [{"id": …, …, "nodes": [{"node": …}, …]}, …]}, of the client's own.
  std::string list(const RequestContext& context, const Replies& replies) const;

 private:
  ProxyCore& core_;
};

}  // namespace troupe
