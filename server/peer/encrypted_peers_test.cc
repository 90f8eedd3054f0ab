// Connections between nodes with certificates: who is served, and who is not.
#include <chrono>
#include <ctime>
#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include "server/io/testing/io_test_fixture.h"
#include "server/peer/channel_settings.h"
#include "server/peer/job_certificates.h"
#include "server/peer/testing/peer_rig.h"
#include "server/stage/extent_source.h"

namespace forebay::peer::encrypted_peers_test {

using io::testing::Take;
using ::testing::HasSubstr;

constexpr std::int64_t kDayS = 86'400;

NodeCertificates Certificates(char secret, const std::string& job = "job",
                              std::int64_t until_s = kDayS) {
  const std::int64_t now_s = std::time(nullptr);
  return Take(MakeNodeCertificates(std::string(kJobSecretBytesMin, secret), job,
                                   {.from_s = now_s - 2 * kDayS, .until_s = now_s + until_s}));
}

class EncryptedPeersTest : public ::testing::Test {
 protected:
  // A node with these certificates that asks one of secret 'a'.
  Status Ask(const NodeCertificates& certificates) {
    FOREBAY_EXPECT_OK(rig_->Connect(rig_->address(), PeerRig::AskingIdentity(), certificates));
    PeerRig::Rows rows = rig_->Ask({1, 2, 3}, kWaitMs);
    const Status outcome = rows.outcome.get();
    EXPECT_EQ(rig_->AreRight(rows), outcome.has_value());
    return outcome;
  }
  // The request must end like one to a node that does not answer: then the next node is asked.
  void ExpectNoAnswer(const NodeCertificates& certificates) {
    const Status refused = Ask(certificates);
    ASSERT_FALSE(refused.has_value());
    EXPECT_TRUE(stage::IsNoAnswer(refused.error())) << refused.error().ToString();
    FOREBAY_EXPECT_OK(Ask(Certificates('a')));  // the node serves those of its job as before
  }

  // A node of secret 'a' asks one with these certificates, and gets no answer.
  static void ExpectNoTalkWith(const NodeCertificates& certificates) {
    const auto other = Take(PeerRig::Create({.certificates = certificates}));
    FOREBAY_EXPECT_OK(other->Connect(other->address(), PeerRig::AskingIdentity(),
                                     Certificates('a')));
    PeerRig::Rows rows = other->Ask({1}, kWaitMs);
    const Status refused = rows.outcome.get();
    ASSERT_FALSE(refused.has_value());
    EXPECT_TRUE(stage::IsNoAnswer(refused.error())) << refused.error().ToString();
  }
  // What a client of a node has, in the place of the node's.
  static NodeCertificates OfClient() {
    NodeCertificates certificates = Certificates('a');
    certificates.node = certificates.client;
    certificates.key = certificates.client_key;
    return certificates;
  }

  static constexpr std::int64_t kWaitMs = 30'000;
  std::unique_ptr<PeerRig> rig_ = Take(PeerRig::Create({.certificates = Certificates('a')}));
};

TEST_F(EncryptedPeersTest, NodesOfOneSecretServeEachOther) {
  FOREBAY_EXPECT_OK(Ask(Certificates('a')));
  const auto extent = rig_->ReadExtent(ExtentId(0));
  ASSERT_TRUE(extent.has_value()) << extent.error().ToString();
  const auto verified =
      stage::VerifySupplied(rig_->dataset(), *rig_->dataset().catalog(), ExtentId(0), *extent);
  EXPECT_TRUE(verified.has_value());
}

TEST_F(EncryptedPeersTest, AnotherSecretIsRefused) { ExpectNoAnswer(Certificates('b')); }

TEST_F(EncryptedPeersTest, TheSameSecretInAnotherJobIsRefused) {
  ExpectNoAnswer(Certificates('a', "other job"));
}

TEST_F(EncryptedPeersTest, AnExpiredCertificateIsRefused) {
  ExpectNoAnswer(Certificates('a', "job", -kDayS));
}

TEST_F(EncryptedPeersTest, PlaintextIsRefused) { ExpectNoAnswer({}); }

// It trusts the authority, and has no certificate that this has signed.
TEST_F(EncryptedPeersTest, ACertificateThatAStrangerHasSignedIsRefused) {
  NodeCertificates forged = Certificates('b');
  forged.authority = Certificates('a').authority;
  ExpectNoAnswer(forged);
}

TEST_F(EncryptedPeersTest, ANodeDoesNotTalkToOneInPlaintext) {
  ExpectNoTalkWith({});
}

// It has a certificate of the job, which is for streams (RemoteDataService) and nothing else.
TEST_F(EncryptedPeersTest, AClientMayMakeNoCallOfNodes) {
  const auto channel = ConnectionTo(rig_->address(), OfClient());
  grpc::GenericStub stub(channel);
  for (const char* const method : {"Hello", "Ping", "Probe", "Extent", "Samples", "FirstReads",
                                   "CatalogPart", "ObjectStats", "Borrow", "Leave", "Join"}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(kWaitMs));
    grpc::CompletionQueue queue;
    const auto call =
        stub.PrepareCall(&context, std::string("/forebay.v1.Peer/") + method, &queue);
    const grpc::Slice empty;
    const grpc::ByteBuffer request(&empty, 1);
    grpc::Status status;
    const auto await = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok);
    };
    call->StartCall(nullptr);
    ASSERT_TRUE(await());
    call->WriteLast(request, grpc::WriteOptions(), nullptr);
    ASSERT_TRUE(await());
    call->Finish(&status, nullptr);
    ASSERT_TRUE(await());
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED)
        << method << ": " << status.error_message();
  }
}

TEST_F(EncryptedPeersTest, AClientCannotPassForANode) { ExpectNoTalkWith(OfClient()); }

TEST_F(EncryptedPeersTest, NoPermissionForPlaintextIsNeeded) {
  const auto listening = PeerServer::Listen({.address = "0.0.0.0:0",
                                             .allow_plaintext = false,
                                             .certificates = Certificates('a')});
  EXPECT_TRUE(listening.has_value());
  const auto refused = PeerServer::Listen({.address = "0.0.0.0:0", .allow_plaintext = false});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("no secret"));
}

}  // namespace forebay::peer::encrypted_peers_test
