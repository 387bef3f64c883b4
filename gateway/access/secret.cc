#include "gateway/access/secret.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace troupe {

StatusOr<std::string> read_secret(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::string secret(kSecretBytesMax + 2, '\0');
  file.read(secret.data(), static_cast<std::streamsize>(secret.size()));
  if (file.bad()) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  secret.resize(static_cast<size_t>(file.gcount()));
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
