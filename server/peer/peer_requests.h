// The requests that nodes send to each other: written by the node that asks, read by the other one,
// which checks them against the limits. What needs the catalog (does the sample exist, how long is
// it) is checked by stage::LocalExtents and fetch::LocalRows.
#pragma once

#include <cstdint>
#include <vector>

#include <grpcpp/support/byte_buffer.h>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/fetch/row_source.h"

namespace forebay::peer {

// The fields that every request has, whatever it asks for.
struct PeerRequest {
  std::uint64_t identity = 0;  // DigestOf the identity of the node that asks
  std::uint64_t dataset = 0;   // hash of the data set's name
  std::uint64_t catalog_fingerprint = 0;
};

struct RowsAsked {
  PeerRequest request;
  std::vector<fetch::Row> rows;  // 1 to limits::kPeerRowsMax; memory is not sent
  fetch::Need need = fetch::Need::kSamples;
};

struct ExtentAsked {
  PeerRequest request;
  ExtentId extent;
};

grpc::ByteBuffer WriteRequest(const RowsAsked& asked);
grpc::ByteBuffer WriteRequest(const ExtentAsked& asked);

// kInvalidArgument: the message is no such request. kResourceExhausted: there are too many rows.
Result<RowsAsked> ParseRowsAsked(const grpc::ByteBuffer& message);
Result<ExtentAsked> ParseExtentAsked(const grpc::ByteBuffer& message);

}  // namespace forebay::peer
