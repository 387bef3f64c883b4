#include "gateway/access/end_user.h"

#include <array>

#include "common/json/json.h"

namespace troupe {

namespace {

// Between characters: names stand in JSON.
std::string_view cut(std::string_view name) {
  if (name.size() <= kEndUserBytesMax) return name;
  size_t end = kEndUserBytesMax;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0U) == 0x80) end -= 1;
  return name.substr(0, end);
}

}  // namespace

std::string_view end_user_of(std::span<const std::pair<std::string, std::string>> headers,
                             std::string_view own_header, std::string_view of_body) {
  const std::array<std::string_view, 3> names{"x-litellm-customer-id", "x-litellm-end-user-id", own_header};
  for (const std::string_view name : names) {
    for (const auto& [key, value] : headers)
      if (!name.empty() && key == name && !value.empty() && is_valid_utf8(value)) return cut(value);
  }
  return cut(of_body);
}

std::string_view end_user_in_body(std::string_view user, std::string_view metadata_user,
                                  std::string_view safety_identifier) {
  if (!user.empty()) return user;
  return metadata_user.empty() ? safety_identifier : metadata_user;
}

Hash128 end_user_id(std::string_view key, std::string_view end_user) {
  return chain_hash(chain_hash(hash_bytes("end user"), key), end_user);
}

}  // namespace troupe
