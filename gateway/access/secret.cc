#include "gateway/access/secret.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/core/regular_file.h"

namespace troupe {

namespace {

// More than a secret has: the error for one that is longer says how long it may be.
constexpr size_t kSecretFileBytesMax = 1u << 20;

}  // namespace

StatusOr<std::string> read_secret(const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(std::string secret, read_regular_file(path, kSecretFileBytesMax));
  if (secret.ends_with('\n')) secret.pop_back();
  if (secret.size() < kSecretBytesMin || secret.size() > kSecretBytesMax) {
    return invalid_argument(absl::StrCat(path, ": a secret of ", kSecretBytesMin, " to ", kSecretBytesMax,
                                         " bytes is needed, such as `openssl rand -hex 32`"));
  }
  return secret;
}

std::string keyed_hash(std::string_view key, std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest, &size);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

}  // namespace troupe
