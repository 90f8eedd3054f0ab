// Owners of OpenSSL's objects, for the files that make or read certificates.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>

namespace forebay::peer {

// Frees what a unique_ptr owns by a function of OpenSSL.
template <auto kFree>
struct Freed {
  template <typename Object>
  void operator()(Object* object) const {
    kFree(object);
  }
};
using OwnedKey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using OwnedCertificate = std::unique_ptr<X509, Freed<X509_free>>;
using OwnedBio = std::unique_ptr<BIO, Freed<BIO_free_all>>;

}  // namespace forebay::peer
