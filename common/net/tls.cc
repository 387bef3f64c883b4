#include "common/net/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/regular_file.h"

namespace troupe {
namespace {

constexpr size_t kFileBytesMax = 4u << 20;  // a bundle of all public authorities has 0.2 MB
constexpr char kCiphersTls12[] = "ECDHE+AESGCM:ECDHE+CHACHA20";
constexpr unsigned char kSessionIdContext[] = "troupe";
constexpr unsigned char kAlpn[] = "\x08http/1.1";
constexpr unsigned kAlpnBytes = sizeof kAlpn - 1;

struct Freer {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <typename T>
using Owned = std::unique_ptr<T, Freer>;

// Returns OpenSSL's first error since the queue was cleared, in its words.
std::string reason() {
  const unsigned long code = ERR_get_error();
  const char* text = ERR_reason_error_string(code);
  ERR_clear_error();
  return text != nullptr ? text : absl::StrCat("error ", code);
}

// Its errors leave the path to the caller, who names the setting beside it.
StatusOr<std::string> read_file(const std::string& path) {
  auto text = read_regular_file(path, kFileBytesMax);
  if (!text.ok()) return invalid_argument(to_std(text.status().message()).substr(path.size() + 2));
  if (text->empty()) return invalid_argument("is empty");
  return text;
}

// Without this callback OpenSSL would ask the terminal for a passphrase.
int no_passphrase(char*, int, int, void*) {
  return -1;
}

StatusOr<std::vector<Owned<X509>>> read_certificates(const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  ERR_clear_error();
  const Owned<BIO> bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  std::vector<Owned<X509>> certificates;
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, no_passphrase, nullptr))
    certificates.emplace_back(next);
  // PEM marks the end of the file by the error "no start line".
  const bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (!ended) return invalid_argument(absl::StrCat("a certificate in it is malformed: ", reason()));
  ERR_clear_error();
  if (certificates.empty()) return invalid_argument("holds no certificate in PEM (BEGIN CERTIFICATE)");
  return certificates;
}

StatusOr<Owned<EVP_PKEY>> read_key(const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  ERR_clear_error();
  const Owned<BIO> bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr));
  if (key != nullptr) return key;
  if (text.find("ENCRYPTED") != std::string::npos) {
    ERR_clear_error();
    return invalid_argument("is encrypted; decrypt it (openssl pkey), nobody is there to type a passphrase");
  }
  if (text.find("PRIVATE KEY-----") == std::string::npos) {
    ERR_clear_error();
    return invalid_argument("holds no private key in PEM (BEGIN PRIVATE KEY)");
  }
  return invalid_argument(absl::StrCat("the key in it is malformed: ", reason()));
}

std::tm utc_of(const ASN1_TIME* time) {
  std::tm utc{};
  ASN1_TIME_to_tm(time, &utc);
  return utc;
}

std::string date_of(std::tm utc) {
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &utc));
}

Status check_valid_now(const X509* certificate) {
  const ASN1_TIME* begin = X509_get0_notBefore(certificate);
  const ASN1_TIME* end = X509_get0_notAfter(certificate);
  if (X509_cmp_current_time(end) < 0)
    return invalid_argument(absl::StrCat("a certificate in it has ended on ", date_of(utc_of(end))));
  if (X509_cmp_current_time(begin) > 0)
    return invalid_argument(absl::StrCat("a certificate in it is not valid before ", date_of(utc_of(begin))));
  return absl::OkStatus();
}

// Refuses a client that offers protocols without ours (h2 alone).
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in,
                    unsigned in_size, void*) {
  unsigned char* chosen = nullptr;
  const int result = SSL_select_next_proto(&chosen, out_size, kAlpn, kAlpnBytes, in, in_size);
  *out = chosen;
  return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

std::string where(std::string_view setting, const std::string& path) {
  return absl::StrCat(to_absl(setting), ": ", path);
}

}  // namespace

void TlsContext::Free::operator()(ssl_ctx_st* context) const {
  SSL_CTX_free(context);
}

TlsContext::TlsContext(bool server, const TlsFiles& files)
    : context_(SSL_CTX_new(server ? TLS_server_method() : TLS_client_method())) {
  SSL_CTX* context = context_.get();
  // Set whatever the machine's openssl.cnf says.
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_max_proto_version(context, 0);
  SSL_CTX_set_cipher_list(context, kCiphersTls12);
  SSL_CTX_clear_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_TICKET);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                   SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
  // A write stops between two records and is retried with the bytes wherever they are then; an idle
  // connection keeps no record buffers (34 KB); one recv brings a record's head and body.
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);  // tickets need none
  SSL_CTX_set_session_id_context(context, kSessionIdContext, sizeof kSessionIdContext - 1);
  if (server) {
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
    if (!files.ca.empty())
      SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  } else {
    SSL_CTX_set_alpn_protos(context, kAlpn, kAlpnBytes);
    SSL_CTX_set_verify(context, files.insecure_skip_verify ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, nullptr);
    if (files.ca.empty()) SSL_CTX_set_default_verify_paths(context);
  }
}

Status TlsContext::load_identity(const TlsFiles& files, const std::string& group) {
  const std::string at = where(group + ".certificate", files.certificate);
  const std::string key_at = where(group + ".private_key", files.private_key);
  auto chain = read_certificates(files.certificate);
  if (!chain.ok()) return annotate(chain.status(), at);
  for (const Owned<X509>& certificate : *chain) {
    TROUPE_RETURN_IF_ERROR(annotate(check_valid_now(certificate.get()), at));
    std::tm end = utc_of(X509_get0_notAfter(certificate.get()));
    const int64_t seconds = timegm(&end);
    expires_at_ = expires_at_ ? std::min(*expires_at_, seconds) : seconds;
  }
  const auto key = read_key(files.private_key);
  if (!key.ok()) return annotate(key.status(), key_at);
  X509* leaf = chain->front().get();
  if (X509_check_private_key(leaf, key->get()) != 1) {
    ERR_clear_error();
    return annotate(invalid_argument(absl::StrCat("is not the key of ", at)), key_at);
  }
  ERR_clear_error();
  if (SSL_CTX_use_certificate(context_.get(), leaf) != 1) return annotate(invalid_argument(reason()), at);
  for (size_t i = 1; i < chain->size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context_.get(), (*chain)[i].get()) != 1)
      return annotate(invalid_argument(reason()), at);
  }
  if (SSL_CTX_use_PrivateKey(context_.get(), key->get()) != 1)
    return annotate(invalid_argument(reason()), key_at);
  return absl::OkStatus();
}

Status TlsContext::load_authorities(const std::string& path, bool server) {
  TROUPE_ASSIGN_OR_RETURN(const auto authorities, read_certificates(path));
  X509_STORE* store = SSL_CTX_get_cert_store(context_.get());
  // Every certificate in the file is trusted, even if it is no root.
  X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN);
  ERR_clear_error();
  for (const Owned<X509>& authority : authorities) {
    const bool added = X509_STORE_add_cert(store, authority.get()) == 1;
    if (!added || (server && SSL_CTX_add_client_CA(context_.get(), authority.get()) != 1))
      return invalid_argument(reason());
  }
  return absl::OkStatus();
}

StatusOr<std::shared_ptr<const TlsContext>> TlsContext::for_server(const TlsFiles& files,
                                                                   std::string_view group) {
  const std::string name(group);
  if (files.certificate.empty() || files.private_key.empty()) {
    const bool certificate = files.certificate.empty();
    return invalid_argument(absl::StrCat(
        name, certificate ? ".certificate" : ".private_key", ": is needed with ", name,
        certificate ? (files.private_key.empty() ? ".client_ca" : ".private_key") : ".certificate"));
  }
  const std::shared_ptr<TlsContext> made(new TlsContext(true, files));
  TROUPE_RETURN_IF_ERROR(made->load_identity(files, name));
  if (!files.ca.empty()) {
    const Status loaded = made->load_authorities(files.ca, true);
    if (!loaded.ok()) return annotate(loaded, where(name + ".client_ca", files.ca));
  }
  return std::shared_ptr<const TlsContext>(made);
}

StatusOr<std::shared_ptr<const TlsContext>> TlsContext::for_client(const TlsFiles& files,
                                                                   std::string_view group) {
  const std::string name(group);
  if (files.certificate.empty() != files.private_key.empty()) {
    const bool certificate = files.certificate.empty();
    return invalid_argument(absl::StrCat(name, certificate ? ".certificate" : ".private_key",
                                         ": is needed with ", name,
                                         certificate ? ".private_key" : ".certificate"));
  }
  const std::shared_ptr<TlsContext> made(new TlsContext(false, files));
  if (!files.certificate.empty()) TROUPE_RETURN_IF_ERROR(made->load_identity(files, name));
  if (!files.ca.empty()) {
    const Status loaded = made->load_authorities(files.ca, false);
    if (!loaded.ok()) return annotate(loaded, where(name + ".ca", files.ca));
  }
  return std::shared_ptr<const TlsContext>(made);
}

}  // namespace troupe
