#pragma once

// Base64 with padding (RFC 4648 §4), strict: only the text that encoding produces decodes.

#include <optional>
#include <string>
#include <string_view>

namespace troupe {

std::string base64(std::string_view bytes);
// Returns nullopt for invalid base64: another alphabet, a length that is no multiple of 4, bits left over.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace troupe
