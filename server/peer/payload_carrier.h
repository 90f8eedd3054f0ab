// PayloadCarrier: the interface through which the bytes of rows travel beside gRPC, over a network
// that moves them without gRPC's cost for each byte. The request and the checksums still go over
// gRPC, which wakes the daemons. ModuleCarrier implements it by a loadable module: MPI.
// PayloadConnections implements it by encrypted connections of its own.
//
//   the node that asks                         the other one
//   place = carrier.Receive(node, memory, ...)
//   gRPC request with the place          ->    finds the rows
//                                              carrier.Send(asking node, place, rows, ...)
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

// Where a node waits for a payload. It says so to the node that is to send it.
struct PayloadPlace {
  std::uint32_t tag = 0;  // of the receive; 0: it waits nowhere
  // These are 0 where a carrier does not need them: the port at which the node accepts connections,
  // and the number of the one by which the payload must come.
  std::uint16_t port = 0;
  std::uint32_t connection = 0;
  bool operator==(const PayloadPlace&) const = default;
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

  // Receives a payload of `node` into the memory of its pieces. Returns where, with a tag that is
  // not 0 and belongs to no other receive; the node is told it and sends there.
  virtual PayloadPlace Receive(NodeRank node, const Payload& payload, Ended ended) = 0;
  // Ends the messages of this receive that have not begun to arrive. The others may still arrive,
  // and what `node` sends later is thrown away. `ended` is called for all of them.
  virtual void Cancel(std::uint32_t tag) = 0;
  // Sends a payload to the node that has posted a receive with as many messages of the same
  // lengths. The pieces are only read.
  virtual void Send(NodeRank node, const PayloadPlace& place, const Payload& payload,
                    Ended ended) = 0;

  // Whether a node that names itself and a place in a request may be sent to now. A carrier may
  // begin to connect to it, so that it can be sent to later.
  virtual bool CanSend(NodeRank node, const PayloadPlace& place) = 0;
};

}  // namespace forebay::peer
