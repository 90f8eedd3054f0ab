// NodeTransport: what tests of several nodes need of a transport: to silence a node, to have its
// bytes altered on the way, and to count requests. There are two: InProcessNodes, and GrpcNodes
// over loopback TCP. Part of forebay::peer_testing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "proto/contract/ids.h"
#include "server/fetch/local_rows.h"
#include "server/fetch/row_source.h"
#include "server/io/io_backend.h"
#include "server/stage/extent_source.h"
#include "server/stage/first_read_keepers.h"
#include "server/stage/local_extents.h"
#include "server/stage/local_first_reads.h"
#include "server/stage/part_source.h"
#include "server/stage/stat_source.h"

namespace forebay::peer {

// All nodes of a job share one object. Thread-safe.
class NodeTransport : public stage::ExtentSource,
                      public stage::FirstReadKeepers,
                      public stage::PartSource,
                      public stage::StatSource,
                      public fetch::RowSource {
 public:
  // The objects that answer for one node; borrowed until Stop. A node that was not added does not
  // answer.
  struct Node {
    stage::LocalExtents* extents = nullptr;
    fetch::LocalRows* rows = nullptr;
    stage::LocalFirstReads* first_reads = nullptr;
    stage::Dataset* dataset = nullptr;  // the only data set of the node
    io::IoBackend* backend = nullptr;   // of its SSD
  };
  // Before the first request of any node.
  void Add(NodeRank rank, const Node& node);
  // From now on the node does not answer: requests to it fail with kUnavailable.
  void Silence(NodeRank rank);
  // From now on one bit is inverted of each extent, each catalog part, and the first chunk of each
  // request for chunks of packs that the node sends.
  void SetFlipsBits(NodeRank rank);
  // From now on rows that the node sends are found to be wrong: requests for them fail with
  // kDataLoss.
  void SetSendsWrongRows(NodeRank rank);
  // From now on the node refuses requests for extents and rows, because it is too busy.
  void SetIsTooBusy(NodeRank rank);
  // Called before each request for an extent that is sent to the node, by the thread that asks.
  void SetBeforeExtents(NodeRank rank, std::function<void()> before);
  // From now on requests for rows of the node are answered only when nobody wants them any more.
  void SetHoldsRows(NodeRank rank);
  // From now on the node's answers to requests for sizes of files have one more than were asked
  // for.
  void SetSendsMoreStats(NodeRank rank);
  // No node answers any more. To be called before the nodes go.
  virtual void Stop() = 0;

  Result<stage::SuppliedExtent> Read(const stage::ExtentRequest& request,
                                     const stage::AllocateImage& allocate,
                                     io::IoQueue& queue) final;
  void ReportWrong(NodeRank node) final;
  void Read(std::shared_ptr<const fetch::RowRequest> request, Done done) final;
  void Keep(stage::KeepRequest request, Kept kept) final;
  Result<stage::PartAnswer> ReadPart(const stage::PartRequest& request,
                                     catalog::TableSpool& part) final;
  Result<std::vector<io::FileInfo>> Stat(const stage::StatRequest& request) final;

  // The number of requests that were sent to the node, answered or not.
  std::uint64_t extents_asked(NodeRank rank) const;
  std::uint64_t row_requests(NodeRank rank) const;
  // The number of row_requests that were for chunks of packs.
  std::uint64_t chunk_requests(NodeRank rank) const;
  // The number of extents, and of answers with chunks, of the node that were reported as wrong.
  std::uint64_t wrong_extents(NodeRank rank) const;
  // Returns where the reader was that has asked the node for rows last.
  fetch::ReaderPlace place_told(NodeRank rank) const;
  // Returns the bytes of rows and extents that the node has sent.
  std::uint64_t bytes_sent(NodeRank rank) const;
  // The number of first reads that the node was asked to keep.
  std::uint64_t first_reads_given(NodeRank rank) const;
  // The number of requests that gave these first reads.
  std::uint64_t first_read_requests(NodeRank rank) const;
  // The number of catalog parts that the node has sent.
  std::uint64_t parts_sent(NodeRank rank) const;
  // The number of requests for sizes of files that were sent to the node, answered or not.
  std::uint64_t stat_requests(NodeRank rank) const;

 protected:
  virtual void Begin(NodeRank rank, const Node& node) = 0;
  virtual void End(NodeRank rank) = 0;
  virtual Result<stage::SuppliedExtent> Carry(const stage::ExtentRequest& request,
                                              const stage::AllocateImage& allocate,
                                              io::IoQueue& queue) = 0;
  virtual void Carry(std::shared_ptr<const fetch::RowRequest> request, Done done) = 0;
  virtual void Carry(stage::KeepRequest request, Kept kept) = 0;
  virtual Result<stage::PartAnswer> Carry(const stage::PartRequest& request,
                                          catalog::TableSpool& part) = 0;
  virtual Result<std::vector<io::FileInfo>> Carry(const stage::StatRequest& request) = 0;

 private:
  struct Counts {
    bool flips_bits = false;
    bool sends_wrong_rows = false;
    bool holds_rows = false;
    bool is_too_busy = false;
    bool sends_more_stats = false;
    std::function<void()> before_extents;
    fetch::ReaderPlace place;
    std::uint64_t extents_asked = 0;
    std::uint64_t row_requests = 0;
    std::uint64_t chunk_requests = 0;
    std::uint64_t wrong_extents = 0;
    std::uint64_t bytes_sent = 0;
    std::uint64_t first_reads = 0;
    std::uint64_t first_read_requests = 0;
    std::uint64_t parts_sent = 0;
    std::uint64_t stat_requests = 0;
  };
  // A request that is answered with kCancelled when nobody wants the rows any more.
  struct HeldRows {
    HeldRows(std::shared_ptr<const fetch::RowRequest> held, Done told)
        : request(std::move(held)), done(std::move(told)) {}
    const std::shared_ptr<const fetch::RowRequest> request;
    const Done done;
    std::stop_callback<std::function<void()>> answer{
        request->reader.unwanted,
        [this] { done(Error(ErrorCode::kCancelled, "nobody wants the rows")); }};
  };

  void CountSent(NodeRank rank, std::uint64_t bytes);

  mutable std::mutex mutex_;
  std::map<NodeRank, Counts> counts_;
  std::vector<std::unique_ptr<HeldRows>> held_;
};

enum class TransportKind : std::uint8_t { kInProcess, kGrpc };
std::unique_ptr<NodeTransport> MakeTransport(TransportKind kind);
// "InProcess" or "Grpc", for the names of parametrised tests.
std::string TransportName(TransportKind kind);

}  // namespace forebay::peer
