// Tests that PmixRendezvous::HearLosses names the nodes of failed tasks. The tests run as tasks of
// a real mpirun; CMake starts this program in no other way. Each task sends the events to itself
// through libpmix, because the mpirun of Debian 12 sends none.
#include <pmix.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"
#include "server/rendezvous/pmix_rendezvous.h"

namespace forebay::rendezvous::pmix_losses_test {

constexpr std::int64_t kNsPerSecond = 1'000'000'000;

NodeEntry Node(std::uint32_t rank) {
  const NodeIdentity identity = {
      .job = "7", .host = "n" + std::to_string(rank), .ssd_directory = "/ssd"};
  return {.identity = identity,
          .place = identity,
          .rank = NodeRank(rank),
          .address = {.host = "10.0.0.1", .port = static_cast<std::uint16_t>(7000 + rank)},
          .capacity_bytes = 1 << 30,
          .nonce = 100 + rank,
          .agreed = {{"protocol version", "1"}}};
}

// The task `rank` of the launch `nspace` has failed. Only this process hears it.
void SayFailed(const char* nspace, pmix_rank_t rank) {
  pmix_proc_t failed;
  PMIX_LOAD_PROCID(&failed, nspace, rank);
  pmix_info_t fact;
  PMIX_INFO_LOAD(&fact, PMIX_EVENT_AFFECTED_PROC, &failed, PMIX_PROC);
  // Blocks until the event is on its way.
  const pmix_status_t said = PMIx_Notify_event(PMIX_ERR_PROC_ABORTED_BY_SIG, &failed,
                                               PMIX_RANGE_PROC_LOCAL, &fact, 1, nullptr, nullptr);
  EXPECT_TRUE(said == PMIX_SUCCESS || said == PMIX_OPERATION_SUCCEEDED) << PMIx_Error_string(said);
  PMIX_INFO_DESTRUCT(&fact);
}

TEST(PmixLosses, NameTheNodesOfOtherTasks) {
  const io::SteadyClock clock;
  auto rendezvous = PmixRendezvous::Connect(clock);
  ASSERT_TRUE(rendezvous.has_value()) << rendezvous.error().ToString();
  const PmixTask task = (*rendezvous)->task();
  ASSERT_EQ(task.task_count, 3U);
  // Ranks of nodes need not be those of tasks.
  const auto nodes = (*rendezvous)->Exchange(Node((task.rank + 1) % 3), 3,
                                             clock.NowNs() + 60 * kNsPerSecond);
  ASSERT_TRUE(nodes.has_value()) << nodes.error().ToString();

  Mutex mutex;
  CondVar changed;
  // PMIx does not keep the order of events, and may repeat one that comes while it registers.
  std::set<NodeRank> heard;
  std::string how;
  (*rendezvous)->HearLosses([&](NodeRank node, std::string_view text) {
    const MutexLock lock(mutex);
    heard.insert(node);
    how = text;
    changed.NotifyAll();
  });
  // If the words do not come, the test ends by its time limit.
  const std::string nspace = std::getenv("PMIX_NAMESPACE");
  SayFailed("another launch", (task.rank + 1) % 3);
  SayFailed(nspace.c_str(), task.rank);
  SayFailed(nspace.c_str(), PMIX_RANK_WILDCARD);
  SayFailed(nspace.c_str(), 3);
  SayFailed(nspace.c_str(), (task.rank + 1) % 3);
  SayFailed(nspace.c_str(), (task.rank + 2) % 3);
  {
    UniqueLock lock(mutex);
    while (heard.size() < 2) changed.Wait(mutex);
    EXPECT_EQ(how, PMIx_Error_string(PMIX_ERR_PROC_ABORTED_BY_SIG));
  }
  *rendezvous = nullptr;
  EXPECT_EQ(heard, (std::set{NodeRank((task.rank + 2) % 3), NodeRank(task.rank)}));
}

}  // namespace forebay::rendezvous::pmix_losses_test
