// Rows whose bytes travel by a PayloadCarrier: how they are divided into messages, which both nodes
// compute from the lengths of the rows, and the answer over gRPC, which has only their checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <grpcpp/support/byte_buffer.h>

#include "server/fetch/local_rows.h"
#include "server/fetch/row_source.h"
#include "server/peer/payload_carrier.h"

namespace forebay::peer {

// The rows of a call, divided into messages.
struct CarriedRows {
  Payload payload;
  std::vector<std::size_t> ends;  // by message: the index behind its last row
};

// Returns the memory that the rows are received in, divided into messages.
CarriedRows MemoryToFill(std::span<const fetch::Row> rows);
// Returns the bytes of the rows where they lie, divided into messages. Each row must have been
// found.
CarriedRows BytesToSend(const fetch::FoundRows& found);

// Whether each row was found, so that they can be carried. Otherwise they go over gRPC with their
// errors.
bool AreAllFound(const fetch::FoundRows& found);

// Returns the answer to the request for `rows`, in the order of `found`. `dataset` is the hash of
// the data set's name.
grpc::ByteBuffer CarriedAnswer(std::uint64_t dataset, std::span<const fetch::Row> rows,
                               const fetch::FoundRows& found);

}  // namespace forebay::peer
