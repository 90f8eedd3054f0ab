// Certificates of the nodes of a job. All nodes derive the same certificate authority from a secret
// that they share, and each one signs a certificate for itself and one for its clients. So a node
// needs no other node to get one, also when it is started again, and no private key ever leaves the
// node. Who does not have the secret has no certificate that the nodes accept.
//
//   FOREBAY_ASSIGN(const auto mine, peer::MakeNodeCertificates(secret, job, {now - day, end}));
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "proto/contract/result.h"

namespace forebay::peer {

// Shorter secrets are refused: they could be guessed from the certificates.
inline constexpr std::size_t kJobSecretBytesMin = 32;

// All are PEM texts; empty: the nodes of the job do not use certificates.
struct NodeCertificates {
  std::string authority;  // certificate of the job's authority, which signs those of the nodes
  std::string node;       // certificate of this node, for both ends of a connection
  std::string key;        // its private key, for this process alone
  // A certificate for the clients of this node, with which they can call other nodes, and nobody
  // can pass for a node; and its private key.
  std::string client = {};
  std::string client_key = {};

  bool empty() const { return node.empty(); }
};

// Both in seconds since the Unix epoch.
struct ValidTime {
  std::int64_t from_s = 0;
  std::int64_t until_s = 0;
};

// The host name in all certificates of nodes: nodes are known by the authority that has signed, and
// not by their names.
inline constexpr char kCertifiedName[] = "node.forebay";

// Derives the authority (Ed25519, whose private key is HKDF-SHA-256 of secret and job; RFC 8032,
// RFC 5869), makes a new key for the node and one for its clients, and signs their certificates
// (X.509 version 3). Errors: kInvalidArgument (the secret is too short), kInternal (OpenSSL has
// failed).
Result<NodeCertificates> MakeNodeCertificates(std::string_view secret, std::string_view job,
                                              const ValidTime& valid);

// Returns a digest of the authority's public key, in hexadecimal digits, which the nodes compare
// before they connect. It is the same for all nodes that have the secret, and does not tell it.
// kInternal: `certificates` has no certificate of an authority.
Result<std::string> AuthorityDigest(const NodeCertificates& certificates);

}  // namespace forebay::peer
