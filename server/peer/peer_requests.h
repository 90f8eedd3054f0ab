// The requests for data that nodes send to each other: written by the node that asks, read by the
// other one, which checks them against the limits; also the answers of one message. What needs the
// catalog (does the sample exist, how long is it) is checked by stage::LocalExtents,
// stage::LocalFirstReads and fetch::LocalRows. Requests that are not about data are in
// member_requests.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <grpcpp/support/byte_buffer.h>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/fetch/row_source.h"
#include "server/io/io_backend.h"
#include "server/peer/payload_carrier.h"
#include "server/stage/gfs/first_reads.h"

namespace forebay::peer {

// The fields that every request has, whatever it asks for.
struct PeerRequest {
  std::uint64_t identity = 0;  // DigestOf the identity of the node that asks
  std::uint64_t dataset = 0;   // hash of the data set's name
  std::uint64_t catalog_fingerprint = 0;
  std::uint32_t rebuilds = 0;  // Dataset::rebuilds of the node that asks
};

struct RowsAsked {
  PeerRequest request;
  std::vector<fetch::Row> rows;  // 1 to limits::kPeerRowsMax; memory is not sent
  fetch::Need need = fetch::Need::kSamples;
  fetch::ReaderPlace place = {};
  PayloadPlace payload = {};  // where the node `from` waits for the bytes of the rows
  NodeRank from = NodeRank(0);
  std::vector<NodeRank> slow_nodes = {};  // limits::kPeerSlowMax at most (LinkWatch::SlowNodes)
};

struct ExtentAsked {
  PeerRequest request;
  ExtentId extent;
};

// Checksums of first reads that another node is to keep.
struct FirstReadsGiven {
  PeerRequest request;  // its catalog_fingerprint is 0 if the node that asks has no catalog yet
  NodeRank from;        // the node that asks
  // 1 to limits::kPeerFirstReadsMax, of extents of the data set of `request`.
  std::vector<stage::FirstRead> reads;
};

struct PartAsked {
  PeerRequest request;  // without a fingerprint, because there is no catalog yet
  ObjectId object;
  std::uint64_t object_hash = 0;  // catalog::HashOf
};

struct StatsAsked {
  PeerRequest request;  // without a fingerprint, likewise
  std::uint64_t batch = 0;         // stage::BatchKey
  std::vector<std::string> paths;  // stage::CheckBatch accepts them
};

grpc::ByteBuffer WriteRequest(const RowsAsked& asked);
grpc::ByteBuffer WriteRequest(const ExtentAsked& asked);
grpc::ByteBuffer WriteRequest(const FirstReadsGiven& given);
grpc::ByteBuffer WriteRequest(const PartAsked& asked);
// The request that is parsed to StatsAsked.
grpc::ByteBuffer WriteStatsRequest(const PeerRequest& request, std::span<const std::string> paths);

// kInvalidArgument: the message is no such request. kResourceExhausted: there are too many rows,
// slow nodes or first reads. kDataLoss: the first reads, or the paths, were altered on their way.
Result<RowsAsked> ParseRowsAsked(const grpc::ByteBuffer& message);
Result<ExtentAsked> ParseExtentAsked(const grpc::ByteBuffer& message);
Result<FirstReadsGiven> ParseFirstReadsGiven(const grpc::ByteBuffer& message);
Result<PartAsked> ParsePartAsked(const grpc::ByteBuffer& message);
Result<StatsAsked> ParseStatsAsked(const grpc::ByteBuffer& message);
// The answer to FirstReadsGiven: the indexes of the reads that differ, in rising order.
grpc::ByteBuffer WriteFirstReadsReply(std::span<const std::uint32_t> differing);
// `count`: of the reads that were given. kInvalidArgument: the message is no answer to them.
Result<std::vector<std::uint32_t>> ParseFirstReadsReply(const grpc::ByteBuffer& message,
                                                        std::size_t count);

// The answer to StatsAsked: sizes and times of the paths, or of those before the first that failed.
grpc::ByteBuffer WriteStatsReply(std::uint64_t batch, std::span<const io::FileInfo> infos);
// `batch` and the number of its paths are those of the request. kInvalidArgument: the message is no
// answer. kDataLoss: it is one to another request, or was altered on its way.
Result<std::vector<io::FileInfo>> ParseStatsReply(const grpc::ByteBuffer& message,
                                                  std::uint64_t batch, std::size_t count);

}  // namespace forebay::peer
