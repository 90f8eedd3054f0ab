// Communicator: what data parallelism needs from a transport. One back end for one process
// (communicator_single.h), one over MPI (communicator_mpi.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/contract/result.h"

namespace forebay::train {

// Collective calls block, must be made by every rank in the same order, and from one thread at
// a time. After an error the group is unusable: call Abort or exit.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual std::uint32_t rank() const = 0;
  virtual std::uint32_t size() const = 0;
  virtual std::uint32_t local_size() const = 0;  // ranks on this node

  // Replaces `values` by their sums over all ranks, formed in the order of ranks: bit-identical
  // on every rank and from run to run for a given number of ranks, whatever algorithm the
  // transport would have chosen. Every rank passes the same length.
  virtual Status AllReduceSum(std::span<float> values) = 0;
  virtual Status AllReduceSum(std::span<double> values) = 0;

  // Replaces `bytes` by rank `root`'s. Every rank passes the same length.
  virtual Status Broadcast(std::span<std::byte> bytes, std::uint32_t root) = 0;
  virtual Status Barrier() = 0;

  // Ends the processes of all ranks, so that none waits for one that failed. With one process
  // it returns, and the caller exits by itself.
  virtual void Abort(int exit_code) = 0;
};

}  // namespace forebay::train
