#pragma once

// A worker with a name of its own for a model says that name in its answers. The client gets the one it
// asked for: in `model` of the answer's JSON, or of an event's data, and of a `response` or `message` in it
// (/v1/responses, /v1/messages). All other bytes stay as they came, also of what is no JSON. Linear in the
// text; texts may be cut anywhere.

#include <string>
#include <string_view>

namespace troupe {

struct ModelRename {
  std::string own;     // the worker's
  std::string client;  // that the client asked for
};
void rename_model(const ModelRename& rename, std::string& json);
// The same in the data lines of server-sent events.
void rename_model_in_events(const ModelRename& rename, std::string& events);

}  // namespace troupe
