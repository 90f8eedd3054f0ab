// Nodes derive the same authority from a secret if secret and job are the same, and otherwise
// another one. Whether connections are made with the certificates: encrypted_peers_test.cc.
#include "server/peer/job_certificates.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::peer::job_certificates_test {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr ValidTime kValid = {.from_s = 1'790'000'000, .until_s = 1'800'000'000};
const std::string kSecret(kJobSecretBytesMin, 's');

NodeCertificates Made(const std::string& secret, const std::string& job) {
  auto made = MakeNodeCertificates(secret, job, kValid);
  EXPECT_TRUE(made.has_value()) << made.error().ToString();
  return made.value_or(NodeCertificates());
}

std::string DigestOf(const NodeCertificates& certificates) {
  const Result<std::string> digest = AuthorityDigest(certificates);
  EXPECT_TRUE(digest.has_value()) << digest.error().ToString();
  return digest.value_or("");
}

TEST(JobCertificatesTest, TheAuthorityFollowsFromSecretAndJob) {
  const NodeCertificates one = Made(kSecret, "job"), other = Made(kSecret, "job");
  EXPECT_EQ(DigestOf(one), DigestOf(other));
  EXPECT_NE(DigestOf(one), DigestOf(Made(kSecret + "s", "job")));
  EXPECT_NE(DigestOf(one), DigestOf(Made(kSecret, "job2")));
  EXPECT_NE(one.key, other.key) << "each node has a key of its own";
  EXPECT_NE(one.node, other.node);
  EXPECT_NE(one.client_key, one.key) << "clients get another key";
}

// Another version of Forebay, or of OpenSSL, must derive the same authority: otherwise a node that
// is started again after an update would be a stranger.
TEST(JobCertificatesTest, TheAuthorityStaysTheSameFromVersionToVersion) {
  EXPECT_EQ(DigestOf(Made(kSecret, "job")),
            "19cb5185ee70beb568785fa1084484cceae4dc7d7c49056db4fd5214d6661623");
}

TEST(JobCertificatesTest, AreTextsThatDoNotTellTheSecret) {
  const NodeCertificates made = Made(kSecret, "job");
  EXPECT_THAT(made.authority, StartsWith("-----BEGIN CERTIFICATE-----"));
  EXPECT_THAT(made.node, StartsWith("-----BEGIN CERTIFICATE-----"));
  EXPECT_THAT(made.key, StartsWith("-----BEGIN PRIVATE KEY-----"));
  EXPECT_THAT(made.client, StartsWith("-----BEGIN CERTIFICATE-----"));
  EXPECT_THAT(made.client_key, StartsWith("-----BEGIN PRIVATE KEY-----"));
  for (const std::string& text :
       {made.authority, made.node, made.key, made.client, made.client_key}) {
    EXPECT_THAT(text, Not(HasSubstr(kSecret)));
  }
}

TEST(JobCertificatesTest, AShortSecretIsRefusedAndNotShown) {
  const auto refused = MakeNodeCertificates("0123456789", "job", kValid);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message(), HasSubstr("has 10 bytes, at least 32 are needed"));
  EXPECT_THAT(refused.error().message(), Not(HasSubstr("0123456789")));
}

TEST(JobCertificatesTest, WhatIsNoCertificateHasNoDigest) {
  EXPECT_EQ(AuthorityDigest({}).error().code(), ErrorCode::kInternal);
  EXPECT_EQ(AuthorityDigest({.authority = "x", .node = "", .key = ""}).error().code(),
            ErrorCode::kInternal);
}

}  // namespace forebay::peer::job_certificates_test
