// PayloadCarrier: the interface through which the bytes of rows travel beside gRPC, over a network
// that moves them without gRPC's cost for each byte. The request and the checksums still go over
// gRPC, which wakes the daemons. ModuleCarrier implements it by a loadable module: MPI.
//
//   the node that asks                         the other one
//   tag = carrier.Receive(node, memory, ...)
//   gRPC request with the tag            ->    finds the rows
//                                              carrier.Send(asking node, tag, rows, ...)
//   gRPC answer                          <-    checksums of the rows
//   verifies each message when both the message and the checksums have come
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"

namespace forebay::peer {

// Bytes that are sent or received as several messages, each of which has several pieces.
struct Payload {
  std::vector<std::span<std::byte>> pieces;  // those of the first message first
  std::vector<std::size_t> ends;             // by message: the index behind its last piece
};

// Thread-safe.
class PayloadCarrier {
 public:
  virtual ~PayloadCarrier() = default;

  // Called once for each message of a payload, in any order, by any thread, perhaps within the call
  // that began it. After that, the carrier does not use the message's memory. It must not wait for
  // the carrier. kCancelled: the receive was cancelled. kUnavailable: the carrier has failed.
  // kInternal: the message that came has another length.
  using Ended = std::function<void(std::size_t message, const Status&)>;

  // Receives a payload of `node` into the memory of its pieces. Returns its tag, which is not 0 and
  // belongs to no other receive; the node is told it and sends with it.
  virtual std::uint32_t Receive(NodeRank node, const Payload& payload, Ended ended) = 0;
  // Ends the messages of this receive that have not begun to arrive. The others still arrive, and
  // what `node` sends later is thrown away. `ended` is called for all of them.
  virtual void Cancel(std::uint32_t tag) = 0;
  // Sends a payload to the node that has posted a receive with as many messages of the same
  // lengths. The pieces are only read.
  virtual void Send(NodeRank node, std::uint32_t tag, const Payload& payload, Ended ended) = 0;

  // Whether a node that names itself and a tag in a request may be sent to.
  virtual bool CanSend(NodeRank node, std::uint32_t tag) const = 0;
};

}  // namespace forebay::peer
