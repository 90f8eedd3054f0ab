// Each call is one collective over all ranks, run to its end. Calls are numbered, and the number
// and the kind of the call are part of the messages' tags. So ranks that call in different orders
// get DATA_LOSS from the transport, and not the numbers of another call.
#include "trainer/comm/communicator.h"

#include <array>
#include <utility>

#include "trainer/comm/collectives.h"
#include "trainer/comm/transport/local_transport.h"

namespace forebay::train {
namespace {

// Ranks that make different calls at the same place must not take each other's messages.
enum class Call : std::uint32_t { kFloats, kDoubles, kBroadcast, kBarrier };

CollectiveTag TagOf(std::uint64_t call, Call kind) {
  return {.step = call, .edge = static_cast<std::uint32_t>(kind), .lane = Lane::kControl};
}

}  // namespace

Communicator Communicator::Alone() {
  return Communicator(std::move(MakeLocalTransports(1).front()));
}

Status Communicator::Finish(PendingCollective& pending) {
  // The watchdog must see that this rank waits for others: then it is not the one that holds the
  // job up.
  progress_->Waits(true);
  const Status finished = train::Finish(pending, *transport_, timeout_ns_);
  progress_->Waits(false);
  return finished;
}

Status Communicator::AllReduceSum(std::span<float> values) {
  AllReduce<float> sum(AllMembers(*transport_), TagOf(calls_++, Call::kFloats), values);
  return Finish(sum);
}

Status Communicator::AllReduceSum(std::span<double> values) {
  AllReduce<double> sum(AllMembers(*transport_), TagOf(calls_++, Call::kDoubles), values);
  return Finish(sum);
}

Status Communicator::Broadcast(std::span<std::byte> bytes, std::uint32_t root) {
  if (root >= size()) {
    return Error(ErrorCode::kInvalidArgument, "broadcast from a rank not there");
  }
  train::Broadcast spread(AllMembers(*transport_), TagOf(calls_++, Call::kBroadcast), bytes,
                          root);
  return Finish(spread);
}

Status Communicator::Barrier() {
  // A reduction of one number: no rank has all shares before every rank has sent its own.
  std::array<double, 1> nothing = {0};
  AllReduce<double> sum(AllMembers(*transport_), TagOf(calls_++, Call::kBarrier), nothing);
  return Finish(sum);
}

}  // namespace forebay::train
