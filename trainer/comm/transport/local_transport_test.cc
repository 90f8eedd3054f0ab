// The suite over threads: groups of two, three, four and five.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "trainer/comm/transport/local_transport.h"
#include "trainer/comm/transport/transport_suite.h"

namespace forebay::train {

void ForEachRank(const std::function<void(Transport&)>& body) {
  for (const std::uint32_t size : {2U, 3U, 4U, 5U}) {
    std::vector<std::unique_ptr<Transport>> ends = MakeLocalTransports(size);
    std::vector<std::jthread> threads;
    for (const auto& end : ends) {
      threads.emplace_back([&body, &end] { body(*end); });
    }
  }
}

namespace {

TEST(LocalTransportTest, APeerThatLeavesFailsWhatWaitsForIt) {
  auto ends = MakeLocalTransports(2);
  std::vector<std::byte> room(8);
  const Ticket before = ends[0]->BeginReceive(1, Lane::kControl, {}, room).value();
  ends[1].reset();
  const Status waited = ends[0]->Wait(before, 1'000'000'000);
  ASSERT_FALSE(waited.has_value());
  EXPECT_EQ(waited.error().code(), ErrorCode::kUnavailable);
  EXPECT_NE(waited.error().message().find("rank 1 has gone"), std::string::npos);
  const Ticket after = ends[0]->BeginSend(1, Lane::kControl, {}, room).value();
  EXPECT_EQ(ends[0]->Test(after).error().code(), ErrorCode::kUnavailable);
}

TEST(LocalTransportTest, WhatALeaverHasSentAndNobodyTookIsGone) {
  auto ends = MakeLocalTransports(2);
  {
    std::vector<std::byte> message(8);
    ASSERT_TRUE(ends[1]->BeginSend(0, Lane::kControl, {}, message).has_value());
    ends[1].reset();
  }
  std::vector<std::byte> room(8);
  const Ticket ticket = ends[0]->BeginReceive(1, Lane::kControl, {}, room).value();
  EXPECT_EQ(ends[0]->Test(ticket).error().code(), ErrorCode::kUnavailable);
}

TEST(LocalTransportTest, AnAbortEndsTheWaitOfAll) {
  auto ends = MakeLocalTransports(3);
  std::vector<std::jthread> threads;
  for (const std::uint32_t rank : {0U, 1U}) {
    threads.emplace_back([&, rank] {
      std::vector<std::byte> room(8);
      const Ticket ticket = ends[rank]->BeginReceive(2, Lane::kControl, {}, room).value();
      const Status waited = ends[rank]->Wait(ticket, 60'000'000'000);
      ASSERT_FALSE(waited.has_value());
      EXPECT_EQ(waited.error().code(), ErrorCode::kUnavailable);
    });
  }
  ends[2]->Abort(1);
}

}  // namespace
}  // namespace forebay::train
