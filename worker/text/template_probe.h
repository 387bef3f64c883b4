#pragma once

// Finds out what a template does with messages by rendering small chats: which roles it shows, where, and how
// it takes content. No source has to be understood for it.

#include <functional>
#include <string>

#include "common/core/status.h"
#include "common/json/json.h"
#include "worker/text/template_roles.h"

namespace troupe {

using RenderTemplate = std::function<StatusOr<std::string>(const bj::object& context)>;

// The traits that make it show the texts of most chats; knows_developer is `known`'s. A template that shows
// no user's message at all keeps `known`.
TemplateTraits probed_traits(const RenderTemplate& render, const TemplateTraits& known);

}  // namespace troupe
