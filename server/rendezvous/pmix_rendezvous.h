// PmixRendezvous: the daemons of a job find each other through the PMIx server of their launcher
// (mpirun, prterun, srun --mpi=pmix). Each puts its entry, all wait for each other in a fence that
// collects the entries, and each gets those of the others. No file is written. After that, the
// launcher may tell a daemon that stays connected which tasks have failed.
//
// Built where libpmix is found; elsewhere Connect returns kUnimplemented (pmix_absent.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "server/io/clock.h"
#include "server/rendezvous/launch_environment.h"
#include "server/rendezvous/rendezvous.h"

namespace forebay::rendezvous {

class PmixRendezvous final : public Rendezvous {
 public:
  // Connects this process with its PMIx server. A process has one connection. kFailedPrecondition:
  // it was not started by a launcher with PMIx.
  static Result<std::unique_ptr<PmixRendezvous>> Connect(const io::Clock& clock);
  // Disconnects. Asks the server, which may not answer. As long as it is connected, launchers take
  // the kill of this process for the failure of its task, and end the job.
  ~PmixRendezvous() override;

  // For FindLaunch.
  PmixTask task() const;

  // Makes Exchange end with kCancelled when `stop_fd` becomes readable. It is borrowed; -1, as
  // before this call: nothing ends Exchange early. To be called before Exchange.
  void StopAt(int stop_fd) { stop_fd_ = stop_fd; }

  // Every task of the launch has to call it, because a fence waits for all: kFailedPrecondition if
  // the number of tasks is not `node_count`. To be called once. kDeadlineExceeded names no ranks,
  // because PMIx does not say who has come to a fence.
  Result<std::vector<NodeEntry>> Exchange(const NodeEntry& own, std::uint32_t node_count,
                                          std::int64_t deadline_ns) override;
  // The server forgets the entries when the job ends, so nothing is removed.
  void Leave() override {}

  // Hears from the launcher which tasks of other nodes fail from now on. `hear` gets the node, and
  // PMIx's word for how its task has ended. It is called on a thread of PMIx, must not block, and
  // is not called when this object is destroyed. To be called once, after Exchange, which learns
  // the nodes of the tasks. If the server refuses, that is logged. Few launchers say anything.
  void HearLosses(std::function<void(NodeRank node, std::string_view how)> hear);

 private:
  struct Session;
  explicit PmixRendezvous(std::unique_ptr<Session> session);
  Status AwaitFence(std::uint32_t node_count, std::int64_t deadline_ns);

  std::unique_ptr<Session> session_;
  int stop_fd_ = -1;
};

}  // namespace forebay::rendezvous
