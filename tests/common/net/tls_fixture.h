#pragma once

// For tests of TLS: authorities that issue certificates into files of a folder of the test's own, and a
// blocking peer that speaks TLS by hand, with every step under the test's control.

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "common/net/tls.h"
#include "tests/common/net/net_fixture.h"

namespace troupe::net_test {

// A folder deleted with the test.
class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe_tls_XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name)) << text;
    return file(name);
  }

 private:
  std::string path_;
};

struct OpenSslFree {
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(SSL* p) const { SSL_free(p); }
  void operator()(SSL_CTX* p) const { SSL_CTX_free(p); }
  void operator()(SSL_SESSION* p) const { SSL_SESSION_free(p); }
  void operator()(X509_EXTENSION* p) const { X509_EXTENSION_free(p); }
};
template <typename T>
using OpenSsl = std::unique_ptr<T, OpenSslFree>;

struct CertificateSpec {
  std::string name = "localhost";
  std::string alternatives = "DNS:localhost,IP:127.0.0.1";  // empty: none
  long begins_in_s = -60, ends_in_s = 86'400;
};

class TestAuthority {
 public:
  explicit TestAuthority(const TestFolder& folder, const std::string& name = "authority")
      : folder_(folder), key_(make_key()), path_(folder.file(name + ".pem")) {
    certificate_ = make(name, key_.get());
    extend(certificate_.get(), NID_basic_constraints, "critical,CA:TRUE");
    extend(certificate_.get(), NID_key_usage, "critical,keyCertSign");
    EXPECT_GT(X509_sign(certificate_.get(), key_.get(), EVP_sha256()), 0);
    write_certificate(path_, certificate_.get());
  }
  const std::string& path() const { return path_; }

  // Writes `file`.pem and `file`.key.
  TlsFiles issue(const std::string& file, const CertificateSpec& spec = {}) const {
    const OpenSsl<EVP_PKEY> key = make_key();
    const OpenSsl<X509> certificate = make(spec.name, key.get(), X509_get_subject_name(certificate_.get()));
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), spec.begins_in_s);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), spec.ends_in_s);
    if (!spec.alternatives.empty())
      extend(certificate.get(), NID_subject_alt_name, spec.alternatives.c_str());
    EXPECT_GT(X509_sign(certificate.get(), key_.get(), EVP_sha256()), 0);
    TlsFiles files;
    files.certificate = folder_.file(file + ".pem");
    files.private_key = folder_.file(file + ".key");
    write_certificate(files.certificate, certificate.get());
    std::FILE* out = std::fopen(files.private_key.c_str(), "w");
    EXPECT_EQ(PEM_write_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr), 1);
    std::fclose(out);
    return files;
  }

 private:
  static OpenSsl<EVP_PKEY> make_key() { return OpenSsl<EVP_PKEY>(EVP_EC_gen("P-256")); }
  static OpenSsl<X509> make(const std::string& name, EVP_PKEY* key, X509_NAME* issuer = nullptr) {
    static std::atomic<long> serial{1};
    OpenSsl<X509> certificate(X509_new());
    X509_set_version(certificate.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 86'400);
    X509_set_pubkey(certificate.get(), key);
    X509_NAME* subject = X509_get_subject_name(certificate.get());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509_set_issuer_name(certificate.get(), issuer != nullptr ? issuer : subject);
    return certificate;
  }
  static void extend(X509* certificate, int nid, const char* value) {
    const OpenSsl<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, nullptr, nid, value));
    EXPECT_EQ(X509_add_ext(certificate, extension.get(), -1), 1);
  }
  static void write_certificate(const std::string& path, X509* certificate) {
    std::FILE* out = std::fopen(path.c_str(), "w");
    EXPECT_EQ(PEM_write_X509(out, certificate), 1);
    std::fclose(out);
  }

  const TestFolder& folder_;
  const OpenSsl<EVP_PKEY> key_;
  OpenSsl<X509> certificate_;
  const std::string path_;
};

// One end of TLS over a RawPeer, blocking: it does only what the test calls.
class RawTls {
 public:
  static OpenSsl<SSL_CTX> client_context() { return OpenSsl<SSL_CTX>(SSL_CTX_new(TLS_client_method())); }
  static OpenSsl<SSL_CTX> server_context(const TlsFiles& files) {
    OpenSsl<SSL_CTX> context(SSL_CTX_new(TLS_server_method()));
    EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context.get(), files.certificate.c_str()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context.get(), files.private_key.c_str(), SSL_FILETYPE_PEM), 1);
    return context;
  }

  RawTls(SSL_CTX* context, RawPeer peer) : peer_(std::move(peer)), ssl_(SSL_new(context)) {
    timeval limit{5, 0};
    ::setsockopt(peer_.descriptor(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    SSL_set_fd(ssl_.get(), peer_.descriptor());
  }
  bool connect() { return SSL_connect(ssl_.get()) == 1; }
  bool accept() { return SSL_accept(ssl_.get()) == 1; }
  bool send(std::string_view bytes) {
    return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) ==
           static_cast<int>(bytes.size());
  }
  // Returns at most one record's content; empty at the end and on errors.
  std::string receive() {
    std::string bytes(20'000, '\0');
    const int size = SSL_read(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()));
    last_error_ = size > 0 ? 0 : SSL_get_error(ssl_.get(), size);
    bytes.resize(static_cast<size_t>(std::max(size, 0)));
    return bytes;
  }
  std::string receive_until(std::string_view mark) {
    std::string all;
    while (all.find(mark) == std::string::npos) {
      const std::string more = receive();
      if (more.empty()) break;
      all += more;
    }
    return all;
  }
  std::string receive_to_end() { return receive_until("no such mark \x01"); }
  // Returns whether the peer announced its end.
  bool ended_well() const { return last_error_ == SSL_ERROR_ZERO_RETURN; }
  void say_end() { SSL_shutdown(ssl_.get()); }
  void close() { peer_.close(); }
  SSL* ssl() { return ssl_.get(); }
  RawPeer& peer() { return peer_; }

 private:
  RawPeer peer_;
  OpenSsl<SSL> ssl_;
  int last_error_ = 0;
};

inline std::shared_ptr<const TlsContext> server_tls(const TlsFiles& files) {
  const auto context = TlsContext::for_server(files, "tls");
  EXPECT_TRUE(context.ok()) << context.status().ToString();
  return context.ok() ? *context : nullptr;
}

inline std::shared_ptr<TlsSource> client_tls(const TlsFiles& files) {
  const auto context = TlsContext::for_client(files, "upstream_tls");
  EXPECT_TRUE(context.ok()) << context.status().ToString();
  return std::make_shared<TlsSource>(TlsSource{context.ok() ? *context : nullptr});
}

}  // namespace troupe::net_test
