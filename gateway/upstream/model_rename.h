#pragma once

// A worker with a name of its own for a model says that name in its answers, or one that it resolves to (a
// dated one, as OpenAI and Azure do), or null. The client gets the one it asked for: in `model` of the
// answer's JSON, or of an event's data, and of a `response` or `message` in it (/v1/responses, /v1/messages).
// All other bytes stay as they came, also of what is no JSON. Linear in the text; texts may be cut anywhere.

#include <string>
#include <string_view>

namespace troupe {

// `client`: the name that it asked for.
void rename_model(std::string_view client, std::string& json);
// The same in the data lines of server-sent events.
void rename_model_in_events(std::string_view client, std::string& events);

}  // namespace troupe
