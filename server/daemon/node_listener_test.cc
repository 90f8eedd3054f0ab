// Tests what is said about the protection of connections between nodes, for every configuration.
#include "server/daemon/node_listener.h"

#include <gtest/gtest.h>

namespace forebay::daemon::node_listener_test {

// With a secret, peer.allow_plaintext changes nothing.
TEST(NodeConnectionsTest, ASecretEncryptsAllButMpi) {
  Config config = DefaultConfig();
  for (const bool allows_plaintext : {false, true}) {
    config.peer_allow_plaintext = allows_plaintext;
    config.peer_transport = "grpc";
    EXPECT_EQ(NodeConnections(config, /*is_encrypted=*/true), "encrypted");
    config.peer_transport = "mpi";
    EXPECT_EQ(NodeConnections(config, /*is_encrypted=*/true), "encrypted_but_mpi");
  }
}

TEST(NodeConnectionsTest, PlaintextStaysOnLoopbackUnlessItIsAllowed) {
  Config config = DefaultConfig();
  for (const char* transport : {"grpc", "mpi"}) {
    config.peer_transport = transport;
    config.peer_allow_plaintext = false;
    EXPECT_EQ(NodeConnections(config, /*is_encrypted=*/false), "plaintext_on_loopback");
    config.peer_allow_plaintext = true;
    EXPECT_EQ(NodeConnections(config, /*is_encrypted=*/false), "plaintext_allowed");
  }
}

}  // namespace forebay::daemon::node_listener_test
