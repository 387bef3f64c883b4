#pragma once

// The one of a client's own users that a request is for, as the client says it. In this order: the headers
// x-litellm-customer-id and x-litellm-end-user-id, one that the settings name, then of the body `user`,
// `metadata.user_id`, `safety_identifier`. Pure.

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/core/block_hash.h"

namespace troupe {

// Longer names are cut.
inline constexpr size_t kEndUserBytesMax = 256;

// `headers`: names in lower case. `own_header`: the configured one, or empty. `of_body`: end_user_in_body(),
// or empty, in UTF-8. A header that is not UTF-8 is left out; an empty result: no end user is named. A
// view into the arguments.
std::string_view end_user_of(std::span<const std::pair<std::string, std::string>> headers,
                             std::string_view own_header, std::string_view of_body);
std::string_view end_user_in_body(std::string_view user, std::string_view metadata_user,
                                  std::string_view safety_identifier);
// An end user is one of a key: the same name with another key is another end user.
Hash128 end_user_id(std::string_view key, std::string_view end_user);

}  // namespace troupe
