#pragma once

// Secrets that all gateways of a fleet share, each in a file of its own, and names derived from them, which
// cannot be forged without the secret.

#include <string>
#include <string_view>

#include "common/core/status.h"

namespace troupe {

inline constexpr size_t kSecretBytesMin = 16, kSecretBytesMax = 4096;

// Reads a secret from a file, without the line's end. Errors name the file.
StatusOr<std::string> read_secret(const std::string& path);
// HMAC-SHA-256, as 64 hex digits.
std::string keyed_hash(std::string_view key, std::string_view bytes);

}  // namespace troupe
