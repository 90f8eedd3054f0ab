// PmixRendezvous: the daemons of a job find each other through the PMIx server of their launcher
// (mpirun, prterun, srun --mpi=pmix). Each puts its entry, all wait for each other in a fence that
// collects the entries, and each gets those of the others. No file is written.
//
// Built where libpmix is found; elsewhere Connect returns kUnimplemented (pmix_absent.cc).
#pragma once

#include <cstdint>
#include <memory>
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
  // Disconnects. Asks the server, which may not answer.
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

 private:
  struct Session;
  explicit PmixRendezvous(std::unique_ptr<Session> session);
  Status AwaitFence(std::uint32_t node_count, std::int64_t deadline_ns);

  std::unique_ptr<Session> session_;
  int stop_fd_ = -1;
};

}  // namespace forebay::rendezvous
