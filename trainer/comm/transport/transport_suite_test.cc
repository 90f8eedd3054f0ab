// Every transport passes these.
#include "trainer/comm/transport/transport_suite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "trainer/comm/collectives.h"

namespace forebay::train::transport_suite_test {

constexpr std::uint64_t kPatienceNs = 30'000'000'000;

std::span<const std::byte> BytesOf(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}
std::span<std::byte> RoomOf(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

void Synchronise(Transport& transport) {
  std::array<double, 1> nothing = {0};
  AllReduce<double> barrier(AllMembers(transport), {.edge = 99, .lane = Lane::kControl}, nothing);
  ASSERT_TRUE(Finish(barrier, transport, kPatienceNs).has_value());
}

// A float that depends on the rank, and whose sums depend on their order.
float Uneven(std::uint32_t rank, std::size_t at) {
  return (rank % 3 == 1 ? 3e7F : 1.25F) * static_cast<float>((rank + 1) * (at % 17 + 1)) +
         0.1F * static_cast<float>(rank);
}

TEST(TransportSuite, HasSeveralRanks) {
  ForEachRank([](Transport& transport) {
    EXPECT_GE(transport.size(), 2U);
    EXPECT_LT(transport.rank(), transport.size());
    EXPECT_EQ(transport.local_size(), transport.size());
    EXPECT_EQ(transport.local_rank(), transport.rank());
  });
}

TEST(TransportSuite, MessagesOfALaneArriveInOrder) {
  ForEachRank([](Transport& transport) {
    const std::uint32_t next = (transport.rank() + 1) % transport.size();
    const std::uint32_t previous = (transport.rank() + transport.size() - 1) % transport.size();
    std::vector<std::vector<float>> sent;
    std::vector<std::vector<float>> received;
    for (std::uint32_t message = 0; message < 20; ++message) {
      sent.emplace_back(100 * message, static_cast<float>(message + transport.rank()));
      received.emplace_back(100 * message, -1.0F);
    }
    std::vector<Ticket> tickets;
    for (std::uint32_t message = 0; message < 20; ++message) {
      const MessageTag tag{.step = 3, .micro_batch = message, .edge = 1, .samples_hash = 77};
      tickets.push_back(
          transport.BeginSend(next, Lane::kActivation, tag, BytesOf(sent[message])).value());
      tickets.push_back(
          transport.BeginReceive(previous, Lane::kActivation, tag, RoomOf(received[message]))
              .value());
    }
    for (const Ticket ticket : tickets) {
      ASSERT_TRUE(transport.Wait(ticket, kPatienceNs).has_value());
    }
    for (std::uint32_t message = 0; message < 20; ++message) {
      EXPECT_TRUE(std::ranges::all_of(received[message], [&](float value) {
        return value == static_cast<float>(message + previous);
      })) << message;
    }
    Synchronise(transport);
  });
}

TEST(TransportSuite, LanesDoNotHoldEachOtherUp) {
  ForEachRank([](Transport& transport) {
    std::vector<float> first(300'000, 1);
    std::vector<float> second(10, 2);
    if (transport.rank() == 0) {
      const Ticket a =
          transport.BeginSend(1, Lane::kActivation, {.micro_batch = 1}, BytesOf(first)).value();
      const Ticket b =
          transport.BeginSend(1, Lane::kGradient, {.micro_batch = 2}, BytesOf(second)).value();
      // The later message, of the other lane, is received before the earlier one.
      ASSERT_TRUE(transport.Wait(b, kPatienceNs).has_value());
      ASSERT_TRUE(transport.Wait(a, kPatienceNs).has_value());
    } else if (transport.rank() == 1) {
      std::vector<float> room(300'000);
      std::vector<float> small(10);
      const Ticket b =
          transport.BeginReceive(0, Lane::kGradient, {.micro_batch = 2}, RoomOf(small)).value();
      ASSERT_TRUE(transport.Wait(b, kPatienceNs).has_value());
      const Ticket a =
          transport.BeginReceive(0, Lane::kActivation, {.micro_batch = 1}, RoomOf(room)).value();
      ASSERT_TRUE(transport.Wait(a, kPatienceNs).has_value());
      EXPECT_EQ(room, first);
      EXPECT_EQ(small, second);
    }
    Synchronise(transport);
  });
}

TEST(TransportSuite, LargeMessagesCrossEachOther) {
  ForEachRank([](Transport& transport) {
    const std::uint32_t peer = transport.rank() ^ 1U;
    if (peer < transport.size()) {
      std::vector<float> own(3'000'000, static_cast<float>(transport.rank()));
      std::vector<float> other(3'000'000, -1);
      const std::array<Ticket, 2> tickets = {
          transport.BeginSend(peer, Lane::kGradient, {}, BytesOf(own)).value(),
          transport.BeginReceive(peer, Lane::kGradient, {}, RoomOf(other)).value()};
      for (const Ticket ticket : tickets) {
        ASSERT_TRUE(transport.Wait(ticket, kPatienceNs).has_value());
      }
      EXPECT_EQ(other.front(), static_cast<float>(peer));
      EXPECT_EQ(other.back(), static_cast<float>(peer));
    }
    Synchronise(transport);
  });
}

TEST(TransportSuite, AnotherMessageThanExpectedIsDataLoss) {
  struct Case {
    MessageTag expected;
    std::size_t floats;
  };
  const MessageTag sent{.step = 5, .micro_batch = 2, .edge = 1, .samples_hash = 9};
  for (const Case& wrong : {Case{{.step = 6, .micro_batch = 2, .edge = 1, .samples_hash = 9}, 4},
                            Case{{.step = 5, .micro_batch = 3, .edge = 1, .samples_hash = 9}, 4},
                            Case{{.step = 5, .micro_batch = 2, .edge = 0, .samples_hash = 9}, 4},
                            Case{{.step = 5, .micro_batch = 2, .edge = 1, .samples_hash = 8}, 4},
                            Case{sent, 6}}) {
    std::vector<float> message(4, 1);
    std::vector<float> room(8, -1);
    ForEachRank([&](Transport& transport) {
      if (transport.rank() == 0) {
        const Ticket ticket =
            transport.BeginSend(1, Lane::kActivation, sent, BytesOf(message)).value();
        ASSERT_TRUE(transport.Wait(ticket, kPatienceNs).has_value());
      } else if (transport.rank() == 1) {
        const Ticket ticket =
            transport
                .BeginReceive(0, Lane::kActivation, wrong.expected,
                              RoomOf(room).first(wrong.floats * sizeof(float)))
                .value();
        const Status status = transport.Wait(ticket, kPatienceNs);
        ASSERT_FALSE(status.has_value());
        EXPECT_EQ(status.error().code(), ErrorCode::kDataLoss);
        EXPECT_NE(status.error().message().find("rank 0 sent"), std::string::npos);
      }
      Synchronise(transport);
    });
  }
}

TEST(TransportSuite, AWaitEndsAndTheTransferGoesOn) {
  ForEachRank([](Transport& transport) {
    std::vector<float> message(4, 7);
    std::vector<float> room(4, -1);
    Ticket ticket = 0;
    if (transport.rank() == 1) {
      ticket = transport.BeginReceive(0, Lane::kControl, {.step = 4}, RoomOf(room)).value();
      EXPECT_FALSE(transport.Test(ticket).value());
      const Status status = transport.Wait(ticket, 1'000'000);
      ASSERT_FALSE(status.has_value());
      EXPECT_EQ(status.error().code(), ErrorCode::kDeadlineExceeded);
      EXPECT_NE(status.error().message().find("for rank 0: step 4"), std::string::npos)
          << status.error().message();
    }
    std::array<double, 1> nothing = {0};
    AllReduce<double> barrier(AllMembers(transport), {.lane = Lane::kReduction}, nothing);
    ASSERT_TRUE(Finish(barrier, transport, kPatienceNs).has_value());
    if (transport.rank() == 0) {
      ticket = transport.BeginSend(1, Lane::kControl, {.step = 4}, BytesOf(message)).value();
    }
    if (transport.rank() < 2) {
      ASSERT_TRUE(transport.Wait(ticket, kPatienceNs).has_value());
    }
    if (transport.rank() == 1) {
      EXPECT_EQ(room, message);
    }
    Synchronise(transport);
  });
}

TEST(TransportSuite, RefusesPeersThatAreNone) {
  ForEachRank([](Transport& transport) {
    std::vector<float> room(1);
    for (const std::uint32_t peer : {transport.rank(), transport.size()}) {
      EXPECT_FALSE(transport.BeginSend(peer, Lane::kControl, {}, BytesOf(room)).has_value());
      EXPECT_FALSE(transport.BeginReceive(peer, Lane::kControl, {}, RoomOf(room)).has_value());
    }
    EXPECT_FALSE(transport.Test(123'456).has_value());
  });
}

// Of each rank `length` values, and of all their sums.
struct Addends {
  Addends(const Transport& transport, std::size_t length) {
    std::vector<std::vector<float>> all(transport.size(), std::vector<float>(length));
    std::vector<float*> leaves;
    for (std::uint32_t rank = 0; rank < transport.size(); ++rank) {
      for (std::size_t at = 0; at < length; ++at) all[rank][at] = Uneven(rank, at);
      leaves.push_back(all[rank].data());
    }
    own = all[transport.rank()];
    SumTree<float>(leaves, length);
    sums = all[0];
  }
  std::vector<float> own, sums;
};

TEST(TransportSuite, AllReduceSumsInATree) {
  ForEachRank([](Transport& transport) {
    for (const std::size_t length : {0U, 1U, 2U, 3U, 1000U, 100'001U}) {
      Addends addends(transport, length);
      AllReduce<float> sum(AllMembers(transport), {.step = length}, addends.own);
      ASSERT_TRUE(Finish(sum, transport, kPatienceNs).has_value());
      EXPECT_EQ(addends.own, addends.sums) << length;
    }
  });
}

TEST(TransportSuite, ReduceScatterSumsTheShareOfEach) {
  ForEachRank([](Transport& transport) {
    for (const std::size_t length : {0U, 1U, 3U, 1000U, 100'001U}) {
      Addends addends(transport, length);
      ReduceScatter<float> sum(AllMembers(transport), {.step = length}, addends.own);
      std::vector<float> expected = addends.own;
      const auto share = [&](std::vector<float>& values) {
        return ShareOf(std::span<float>(values), transport.rank(), transport.size());
      };
      std::ranges::copy(share(addends.sums), share(expected).begin());
      ASSERT_TRUE(Finish(sum, transport, kPatienceNs).has_value());
      EXPECT_EQ(addends.own, expected) << length;
    }
  });
}

TEST(TransportSuite, SharesCoverEveryValueOnce) {
  std::vector<float> values(10);
  const std::span<float> all(values);
  for (std::uint32_t members = 1; members <= 12; ++members) {
    std::size_t covered = 0;
    for (std::uint32_t member = 0; member < members; ++member) {
      const std::span<float> share = ShareOf(all, member, members);
      EXPECT_EQ(share.data(), values.data() + covered);
      covered += share.size();
    }
    EXPECT_EQ(covered, values.size()) << members;
  }
}

TEST(TransportSuite, AllReduceSumsDoubles) {
  ForEachRank([](Transport& transport) {
    std::array<double, 3> values = {1e15 + transport.rank(), 0.5, -1};
    AllReduce<double> sum(AllMembers(transport), {}, values);
    ASSERT_TRUE(Finish(sum, transport, kPatienceNs).has_value());
    const double ranks = transport.size();
    EXPECT_EQ(values[0], ranks * 1e15 + ranks * (ranks - 1) / 2);
    EXPECT_EQ(values[1], 0.5 * ranks);
  });
}

TEST(TransportSuite, CollectivesOverlapAndStayApart) {
  ForEachRank([](Transport& transport) {
    std::vector<float> first(1000, 1);
    std::vector<float> second(500, 2);
    std::vector<float> third(700, 3);
    CollectiveQueue queue;
    const auto begin = [&](std::uint32_t id, std::vector<float>& values) {
      auto sum = std::make_unique<AllReduce<float>>(AllMembers(transport),
                                                    CollectiveTag{.edge = id}, values);
      ASSERT_TRUE(queue.Begin(id, std::move(sum), transport).has_value());
    };
    // All begin them in one order; what they do in between differs.
    begin(1, first);
    if (transport.rank() == 0) {
      ASSERT_TRUE(queue.Advance(transport).has_value());
    }
    begin(2, second);
    if (transport.rank() == 1) {
      ASSERT_TRUE(queue.Advance(transport).has_value());
    }
    begin(3, third);
    EXPECT_FALSE(queue.Done(3));
    while (true) {
      const auto waited = queue.Advance(transport);
      ASSERT_TRUE(waited.has_value()) << waited.error().ToString();
      if (waited->empty()) break;
      ASSERT_TRUE(transport.AwaitAny(*waited, kPatienceNs).has_value());
    }
    EXPECT_TRUE(queue.Done(3));
    EXPECT_EQ(third.front(), 3.0F * static_cast<float>(transport.size()));
    EXPECT_EQ(first.back(), static_cast<float>(transport.size()));
    EXPECT_EQ(second.front(), 2.0F * static_cast<float>(transport.size()));
    Synchronise(transport);
  });
}

TEST(TransportSuite, CollectivesOfSomeRanks) {
  ForEachRank([](Transport& transport) {
    std::vector<std::uint32_t> last_two = {transport.size() - 2, transport.size() - 1};
    auto members = MakeMembers(last_two, transport.rank());
    ASSERT_EQ(members.has_value(), transport.rank() + 2 >= transport.size());
    if (members.has_value()) {
      std::vector<float> values(100, static_cast<float>(transport.rank()));
      AllReduce<float> sum(*members, {}, values);
      ASSERT_TRUE(Finish(sum, transport, kPatienceNs).has_value());
      EXPECT_EQ(values[50], static_cast<float>(2 * transport.size() - 3));
    }
    Synchronise(transport);
  });
}

TEST(TransportSuite, AllGatherKeepsTheOrderOfMembers) {
  ForEachRank([](Transport& transport) {
    const std::array<std::uint32_t, 2> own = {transport.rank(), transport.rank() * 10};
    std::vector<std::uint32_t> all(2 * transport.size());
    AllGather gather(AllMembers(transport), {}, std::as_bytes(std::span(own)),
                     std::as_writable_bytes(std::span(all)));
    ASSERT_TRUE(Finish(gather, transport, kPatienceNs).has_value());
    for (std::uint32_t rank = 0; rank < transport.size(); ++rank) {
      EXPECT_EQ(all[2 * rank], rank);
      EXPECT_EQ(all[2 * rank + 1], rank * 10);
    }
  });
}

TEST(TransportSuite, BroadcastFromEveryRoot) {
  ForEachRank([](Transport& transport) {
    for (std::uint32_t root = 0; root < transport.size(); ++root) {
      std::vector<float> values(12'345, static_cast<float>(transport.rank()));
      Broadcast spread(AllMembers(transport), {.step = root}, RoomOf(values), root);
      ASSERT_TRUE(Finish(spread, transport, kPatienceNs).has_value());
      EXPECT_EQ(values.front(), static_cast<float>(root));
      EXPECT_EQ(values.back(), static_cast<float>(root));
    }
  });
}

}  // namespace forebay::train::transport_suite_test
