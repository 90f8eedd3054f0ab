// The MPI module between two ranks, which ctest starts by mpirun: messages of one and of many
// pieces, of another length, and without a receiver. A rank that has something to tell the other
// one does so by a payload. What the module refuses is tested in launches of their own.
//
// ctest runs the tests a second time with a module that is built with blocks of 16 KiB, so that the
// same messages are longer than a block, and that stops looking for late messages after 200 ms.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/peer/module_carrier.h"
#include "server/peer/testing/owned_payload.h"

namespace forebay::peer {
namespace {

using ::testing::HasSubstr;

std::uint32_t RankOfLauncher() {
  // The first variable is Open MPI's, the second one that of MPICH and its relatives.
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    if (const char* rank = std::getenv(name)) {
      return static_cast<std::uint32_t>(std::strtoul(rank, nullptr, 10));
    }
  }
  return 0;
}

// The module with small constants, if ctest says so.
const char* SmallModule() { return std::getenv("FOREBAY_MPI_SMALL_MODULE"); }

Result<std::unique_ptr<ModuleCarrier>> Load(std::uint32_t node, std::uint32_t node_count = 2) {
  return ModuleCarrier::Load({.path = SmallModule() != nullptr ? SmallModule() : FOREBAY_MPI_MODULE,
                              .self = NodeRank(node),
                              .node_count = node_count,
                              .name = "host" + std::to_string(node) + ":/ssd"});
}

// How often the module's thread has gone to sleep, which the kernel counts.
std::uint64_t SleepsOfTheThread() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name != "forebay-mpi") continue;
    std::ifstream status(task.path() / "status");
    for (std::string word; status >> word;) {
      std::uint64_t count = 0;
      if (word == "voluntary_ctxt_switches:" && status >> count) return count;
    }
  }
  ADD_FAILURE() << "no thread has the name";
  return 0;
}

// Whether the thread goes to sleep and stays asleep for two seconds, within 20.
bool FallsAsleep() {
  std::promise<void> never;
  const std::future<void> wait = never.get_future();
  for (int i = 0; i < 10; ++i) {
    const std::uint64_t before = SleepsOfTheThread();
    wait.wait_for(std::chrono::seconds(2));
    if (SleepsOfTheThread() == before) return true;
  }
  return false;
}

class MpiModuleTest : public ::testing::Test {
 protected:
  // The carrier is made once, because MPI can be.
  static ModuleCarrier& Carrier() {
    static const std::unique_ptr<ModuleCarrier> carrier = [] {
      auto made = Load(RankOfLauncher());
      if (!made.has_value()) {
        ADD_FAILURE() << made.error().ToString();
        std::abort();
      }
      return std::move(*made);
    }();
    return *carrier;
  }
  static bool Asks() { return RankOfLauncher() == 0; }
  static NodeRank Other() { return NodeRank(Asks() ? 1U : 0U); }
  // Tells the other rank a number, or hears it.
  static void Tell(std::uint32_t tag, std::uint32_t number) {
    OwnedPayload told({sizeof(number)}, 4, 1);
    std::memcpy(told.memory.data(), &number, sizeof(number));
    Outcomes sent(1);
    Carrier().Send(Other(), {.tag = tag}, told.payload, sent.Ended());
    ASSERT_TRUE(sent.Await(0).has_value());
  }

  static std::uint32_t Hear() {
    OwnedPayload heard({sizeof(std::uint32_t)}, 4, 1);
    Outcomes outcome(1);
    Carrier().Receive(Other(), heard.payload, outcome.Ended());
    EXPECT_TRUE(outcome.Await(0).has_value());
    std::uint32_t number = 0;
    std::memcpy(&number, heard.memory.data(), sizeof(number));
    return number;
  }
  // Tags of receives on rank 1 are 1, 2, ..., one for each number that it hears.
  static std::uint32_t NextTold() {
    static std::uint32_t told = 0;
    return ++told;
  }

  // Rank 0 receives `receiving`, and rank 1 sends `sending`.
  static std::vector<Status> Move(OwnedPayload& receiving, OwnedPayload& sending) {
    std::vector<Status> all;
    const std::size_t messages = receiving.payload.ends.size();
    Outcomes outcomes(messages);
    if (Asks()) {
      const std::uint32_t tag =
          Carrier().Receive(Other(), receiving.payload, outcomes.Ended()).tag;
      Tell(NextTold(), tag);
    } else {
      Carrier().Send(Other(), {.tag = Hear()}, sending.payload, outcomes.Ended());
    }
    for (std::size_t i = 0; i < messages; ++i) all.push_back(outcomes.Await(i));
    return all;
  }
};

TEST_F(MpiModuleTest, MessagesArriveHoweverTheyAreCut) {
  const std::vector<std::size_t> lengths = {114'660, 4096, 1, 3'000'000, 300'000};
  // The message has one piece, many pieces on one side, or many on both.
  for (const auto& [receives, sends] :
       {std::pair{10'000'000, 10'000'000}, {10'000'000, 1000}, {777, 10'000'000}, {777, 1000}}) {
    OwnedPayload sent(lengths, static_cast<std::size_t>(sends), /*seed=*/7);
    OwnedPayload received(lengths, static_cast<std::size_t>(receives), /*seed=*/0);
    for (const Status& status : Move(received, sent)) {
      EXPECT_TRUE(status.has_value()) << status.error().ToString();
    }
    if (Asks()) {
      EXPECT_TRUE(received.memory == sent.memory);
    }
  }
}

TEST_F(MpiModuleTest, AMessageOfAnotherLengthIsRefused) {
  OwnedPayload sent({100'000, 50'000}, 1 << 20, 3);
  OwnedPayload received({99'999, 50'001}, 1 << 20, 0);
  const std::vector<Status> all = Move(received, sent);
  if (!Asks()) return;
  for (const Status& status : all) {
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code(), ErrorCode::kInternal) << status.error().ToString();
  }
}

// With the small module the thread has stopped waking up before the message comes.
TEST_F(MpiModuleTest, ACancelledReceiveEndsAndWhatComesLaterDoesNotKeepItsSender) {
  // The message is too long to be sent before a receiver is there.
  OwnedPayload payload({5'000'000}, 1 << 30, 5);
  if (Asks()) {
    const std::vector<std::byte> before = payload.memory;
    Outcomes received(1);
    const std::uint32_t tag =
        Carrier().Receive(Other(), payload.payload, received.Ended()).tag;
    Carrier().Cancel(tag);
    const Status status = received.Await(0);
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code(), ErrorCode::kCancelled);
    if (SmallModule() != nullptr) {
      EXPECT_TRUE(FallsAsleep()) << "nothing is under way";
    }
    Tell(NextTold(), tag);
    // The other rank answers when its message has gone.
    EXPECT_EQ(Hear(), 17U);
    EXPECT_TRUE(payload.memory == before) << "nothing is written after the end of the receive";
  } else {
    Outcomes sent(1);
    const std::uint32_t tag = Hear();
    Carrier().Send(Other(), {.tag = tag}, payload.payload, sent.Ended());
    EXPECT_TRUE(sent.Await(0).has_value());
    Tell(tag + 1, 17);  // rank 0's next receive
  }
}

TEST_F(MpiModuleTest, ZLeavesTogether) {
  EXPECT_FALSE(Carrier().CanSend(NodeRank(2), {.tag = 1}));
  EXPECT_FALSE(Carrier().CanSend(NodeRank(RankOfLauncher()), {.tag = 1}));
  EXPECT_FALSE(Carrier().CanSend(Other(), {.tag = 0}));
  EXPECT_TRUE(Carrier().CanSend(Other(), {.tag = 32'767}));
  EXPECT_TRUE(Carrier().Leave(60'000));
}

// The next two are programs of their own, because a process starts MPI once.
TEST(MpiModuleOtherOrderTest, RanksThatAreNumberedInAnotherWayAreNamed) {
  const auto made = Load(1 - RankOfLauncher());
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().message(), HasSubstr("rank 0 of MPI is host1:/ssd, which is node 1"));
}

TEST(MpiModuleAloneTest, AJobOfMoreNodesThanRanksIsRefused) {
  const auto made = Load(0, 2);
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().message(), HasSubstr("MPI has 1 ranks, and the job has 2 nodes"));
}

}  // namespace
}  // namespace forebay::peer
