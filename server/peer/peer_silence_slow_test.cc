// A connection that goes silent without being closed, as after a node has lost its power: it is
// found although the deadline of the request is far away.
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "server/io/testing/io_test_fixture.h"
#include "server/peer/testing/peer_rig.h"
#include "server/peer/testing/tcp_relay.h"

namespace forebay::peer {
namespace {

TEST(PeerSilenceTest, AHalfOpenConnectionIsFoundBeforeTheDeadline) {
  auto made = PeerRig::Create({});
  ASSERT_TRUE(made.has_value()) << made.error().ToString();
  TcpRelay relay((*made)->address());
  const std::unique_ptr<PeerRig> rig = std::move(*made);
  FOREBAY_EXPECT_OK(rig->Connect(relay.address()));
  PeerRig::Rows rows = rig->Ask({0, 1});
  FOREBAY_EXPECT_OK(rows.outcome.get());
  relay.HoldAnswers(true);
  rows = rig->Ask({0, 1}, /*wait_ms=*/600'000);
  const Status outcome = rows.outcome.get();
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code(), ErrorCode::kUnavailable) << outcome.error().ToString();
}

}  // namespace
}  // namespace forebay::peer
