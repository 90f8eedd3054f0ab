// Communicator: the blocking collectives of a training job, over any Transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "proto/contract/result.h"
#include "trainer/comm/collectives.h"
#include "trainer/comm/transport/transport.h"
#include "trainer/comm/watchdog/progress.h"

namespace forebay::train {

// Collective calls block, must be made by every rank in the same order, and from one thread at
// a time. After an error the group is unusable: call Abort or exit. kDeadlineExceeded where a
// peer is not heard of for the timeout, kUnavailable where it has gone.
class Communicator {
 public:
  static constexpr std::uint64_t kTimeoutNs = 1'800'000'000'000;

  explicit Communicator(std::unique_ptr<Transport> transport,
                        std::uint64_t timeout_ns = kTimeoutNs)
      : transport_(std::move(transport)),
        progress_(std::make_unique<Progress>()),
        timeout_ns_(timeout_ns) {}

  // A communicator for a job of one process.
  static Communicator Alone();

  std::uint32_t rank() const { return transport_->rank(); }
  std::uint32_t size() const { return transport_->size(); }
  std::uint32_t local_size() const { return transport_->local_size(); }
  std::uint32_t local_rank() const { return transport_->local_rank(); }
  Transport& transport() { return *transport_; }
  // What this rank is doing. Collective calls mark themselves as waiting for other ranks.
  Progress& progress() { return *progress_; }

  // Replaces `values` by their sums over all ranks, in a binary tree over the ranks' index: the
  // same bits on every rank and in every run. Every rank passes the same length.
  Status AllReduceSum(std::span<float> values);
  Status AllReduceSum(std::span<double> values);

  // Replaces `bytes` by those of rank `root`. Every rank passes the same length.
  Status Broadcast(std::span<std::byte> bytes, std::uint32_t root);
  Status Barrier();

  // Ends the processes of all ranks, so that none waits for one that failed. With one process
  // it returns, and the caller exits by itself.
  void Abort(int exit_code) { transport_->Abort(exit_code); }

 private:
  Status Finish(PendingCollective& pending);

  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Progress> progress_;
  std::uint64_t timeout_ns_;
  std::uint64_t calls_ = 0;  // so far: ranks that call in another order are found out
};

}  // namespace forebay::train
