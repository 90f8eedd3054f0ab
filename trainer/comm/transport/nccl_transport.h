// Messages between ranks with a GPU each, from device memory to device memory, over NCCL.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "proto/contract/result.h"
#include "trainer/comm/transport/transport.h"

namespace forebay::train {

// Where a plan sends device memory.
struct NcclLink {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  Lane lane = Lane::kActivation;
};

// What lies on the host goes over `control`, as do the headers of what lies on `device`, which
// the receiver checks before it takes a byte. Device memory that is sent must be complete: no
// stream still writes it. Both ends of a message lie on the host or both on devices.
//
// Each link is a communicator and a stream of its own: a message waits for those of its own link
// only, whose order is the plan's on both ends, so that no order between links can hang.
//
// Collective over `control`; all ranks pass the same links in the same order.
// kFailedPrecondition names the call of CUDA or NCCL that failed.
Result<std::unique_ptr<Transport>> MakeNcclTransport(std::unique_ptr<Transport> control,
                                                     int device,
                                                     std::span<const NcclLink> links);

}  // namespace forebay::train
