// Transport: messages between the ranks of a training job. There are back ends for threads of one
// process (local_transport.h), for MPI (mpi_transport.h) and for NCCL (nccl_transport.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "proto/contract/result.h"

namespace forebay::train {

// Classes of traffic. Messages of one lane between two ranks arrive in the order in which they were
// sent. Lanes do not delay each other.
enum class Lane : std::uint8_t {
  kActivation = 0,
  kGradient = 1,
  kReduction = 2,        // shares on their way to the member that sums them
  kReductionReturn = 3,  // sums on their way back
  kControl = 4,
};
inline constexpr std::size_t kLaneCount = 5;

// The identity of a message. It travels with the message, and a receiver that expects another one
// gets kDataLoss. So no micro-batch is ever taken for another.
struct MessageTag {
  std::uint64_t step = 0;
  std::uint32_t micro_batch = 0;  // of a collective: its round
  std::uint32_t edge = 0;         // of a collective: its number in the plan
  std::uint64_t samples_hash = 0;  // of the ids of the micro-batch's samples, in order
  friend bool operator==(const MessageTag&, const MessageTag&) = default;
};

// "step 7, micro-batch 3, edge 1, samples 0123456789abcdef".
std::string ToString(const MessageTag& tag);

// Returns kDeadlineExceeded: "rank 1 waited 5.0 s for rank 0: <tag>".
Error Overdue(std::uint32_t rank, std::uint32_t peer, const MessageTag& tag,
              std::uint64_t timeout_ns);

// A transfer that is under way. The ticket is valid until Test or Wait reports the end of the
// transfer or an error.
using Ticket = std::uint64_t;

// One rank's end of the links to all other ranks. Not thread-safe: one thread calls it. After an
// error other than kDeadlineExceeded the job cannot go on: call Abort, or destroy the transport, so
// that peers do not wait for ever. Transfers make progress only during calls.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::uint32_t rank() const = 0;
  virtual std::uint32_t size() const = 0;
  virtual std::uint32_t local_size() const = 0;  // ranks on this node
  virtual std::uint32_t local_rank() const = 0;  // this one's number among them

  // Begin a transfer and return at once. `bytes` belong to the transport until the transfer is
  // done. Both ends name the same tag and number of bytes; otherwise the receiver gets kDataLoss.
  virtual Result<Ticket> BeginSend(std::uint32_t peer, Lane lane, const MessageTag& tag,
                                   std::span<const std::byte> bytes) = 0;
  virtual Result<Ticket> BeginReceive(std::uint32_t peer, Lane lane, const MessageTag& tag,
                                      std::span<std::byte> bytes) = 0;

  // Returns true if the transfer is done, which ends the ticket. Never waits. kUnavailable if the
  // peer has gone, kDataLoss if another message came than was expected; the job cannot go on after
  // either.
  virtual Result<bool> Test(Ticket ticket) = 0;
  // Waits until Test would return true or an error for one of `tickets`, of which there is at least
  // one. kDeadlineExceeded after `timeout_ns`, naming message and peer of the first ticket.
  virtual Status AwaitAny(std::span<const Ticket> tickets, std::uint64_t timeout_ns) = 0;

  // AwaitAny and Test for one transfer.
  Status Wait(Ticket ticket, std::uint64_t timeout_ns);

  // Ends all ranks. With MPI the call does not return.
  virtual void Abort(int exit_code) = 0;
};

}  // namespace forebay::train
