// Counts, then leaves the request to the transport. The mutex is released before that, because
// nodes ask each other.
//
// Faults such as altered bytes are made here, when the transport has answered. So both transports
// have the same ones, and the code of the node that is asked is not changed for them.
#include "server/peer/testing/node_transport.h"

#include <string>
#include <utility>

#include "server/peer/testing/grpc_nodes.h"
#include "server/peer/testing/in_process_nodes.h"

namespace forebay::peer {
namespace {

// What a transport says when the deadline of a request has passed.
Error TooBusy(NodeRank node) {
  return stage::TooBusy("node " + std::to_string(node.value()) + " answers other calls");
}

}  // namespace

// The counts must exist before the node can be asked.
void NodeTransport::Add(NodeRank rank, const Node& node) {
  {
    std::lock_guard lock(mutex_);
    counts_[rank] = {};
  }
  Begin(rank, node);
}

void NodeTransport::Silence(NodeRank rank) { End(rank); }

void NodeTransport::SetFlipsBits(NodeRank rank) {
  std::lock_guard lock(mutex_);
  counts_[rank].flips_bits = true;
}

void NodeTransport::SetSendsWrongRows(NodeRank rank) {
  std::lock_guard lock(mutex_);
  counts_[rank].sends_wrong_rows = true;
}

void NodeTransport::SetIsTooBusy(NodeRank rank) {
  std::lock_guard lock(mutex_);
  counts_[rank].is_too_busy = true;
}

void NodeTransport::SetBeforeExtents(NodeRank rank, std::function<void()> before) {
  std::lock_guard lock(mutex_);
  counts_[rank].before_extents = std::move(before);
}

void NodeTransport::SetHoldsRows(NodeRank rank) {
  std::lock_guard lock(mutex_);
  counts_[rank].holds_rows = true;
}

Result<stage::SuppliedExtent> NodeTransport::Read(const stage::ExtentRequest& request,
                                                  const stage::AllocateImage& allocate,
                                                  io::IoQueue& queue) {
  bool flips_bits = false;
  std::function<void()> before;
  {
    std::lock_guard lock(mutex_);
    ++counts_[request.node].extents_asked;
    flips_bits = counts_[request.node].flips_bits;
    before = counts_[request.node].before_extents;
    if (counts_[request.node].is_too_busy) return TooBusy(request.node);
  }
  // The function may block or make other requests, so it is called without the mutex.
  if (before) before();
  FOREBAY_ASSIGN(stage::SuppliedExtent supplied, Carry(request, allocate, queue));
  CountSent(request.node, supplied.image.bytes().size());
  // The checksum stays as the node has sent it, so the caller can find the altered bit.
  if (flips_bits) supplied.image.bytes()[0] ^= std::byte{1};
  return supplied;
}

void NodeTransport::ReportWrong(NodeRank node) {
  std::lock_guard lock(mutex_);
  ++counts_[node].wrong_extents;
}

std::uint64_t NodeTransport::wrong_extents(NodeRank rank) const {
  std::lock_guard lock(mutex_);
  return counts_.at(rank).wrong_extents;
}

void NodeTransport::Read(std::shared_ptr<const fetch::RowRequest> request, Done done) {
  bool holds = false;
  bool is_too_busy = false;
  bool flips_bits = false;
  {
    std::lock_guard lock(mutex_);
    ++counts_[request->node].row_requests;
    flips_bits = counts_[request->node].flips_bits;
    if (request->rows.front().chunk != 0) ++counts_[request->node].chunk_requests;
    is_too_busy = counts_[request->node].is_too_busy;
    holds = counts_[request->node].holds_rows;
    counts_[request->node].place = request->reader.place;
    if (counts_[request->node].sends_wrong_rows) {
      // As with a real transport, the rows may have been written before that was found out.
      done = [done = std::move(done)](const Status& status) {
        done(status.has_value() ? Status(Error(ErrorCode::kDataLoss, "the checksum differs"))
                                : status);
      };
    }
  }
  if (is_too_busy) return done(TooBusy(request->node));
  if (flips_bits && request->rows.front().chunk != 0) {
    done = [request, done = std::move(done)](const Status& status) {
      request->rows.front().memory.back() ^= std::byte{1};
      done(status);
    };
  }
  // Bytes count as sent when the request has succeeded: of a failed one it is not known how many of
  // them came.
  std::uint64_t bytes = 0;
  for (const fetch::Row& row : request->rows) bytes += row.memory.size();
  done = [this, node = request->node, bytes, done = std::move(done)](const Status& status) {
    if (status.has_value()) CountSent(node, bytes);
    done(status);
  };
  if (!holds) return Carry(std::move(request), std::move(done));
  // Made without the mutex, because it may answer at once.
  auto held = std::make_unique<HeldRows>(std::move(request), std::move(done));
  std::lock_guard lock(mutex_);
  held_.push_back(std::move(held));
}

void NodeTransport::CountSent(NodeRank rank, std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  counts_[rank].bytes_sent += bytes;
}

std::uint64_t NodeTransport::bytes_sent(NodeRank rank) const {
  std::lock_guard lock(mutex_);
  return counts_.at(rank).bytes_sent;
}

void NodeTransport::Keep(stage::KeepRequest request, Kept kept) {
  {
    std::lock_guard lock(mutex_);
    counts_[request.node].first_reads += request.reads.size();
    ++counts_[request.node].first_read_requests;
  }
  Carry(std::move(request), std::move(kept));
}

std::uint64_t NodeTransport::first_reads_given(NodeRank rank) const {
  std::lock_guard lock(mutex_);
  return counts_.at(rank).first_reads;
}

std::uint64_t NodeTransport::first_read_requests(NodeRank rank) const {
  std::lock_guard lock(mutex_);
  return counts_.at(rank).first_read_requests;
}

Result<stage::PartAnswer> NodeTransport::ReadPart(const stage::PartRequest& request,
                                                  catalog::TableSpool& part) {
  bool flips_bits = false;
  {
    std::lock_guard lock(mutex_);
    flips_bits = counts_[request.node].flips_bits;
  }
  FOREBAY_ASSIGN(const stage::PartAnswer answer, Carry(request, part));
  // An answer that the part is not there yet has no bytes.
  if (!answer.is_there) return answer;
  if (flips_bits) {
    std::byte first;
    FOREBAY_TRY(part.Read(0, {&first, 1}));
    first ^= std::byte{1};
    FOREBAY_TRY(part.ReplaceStart({&first, 1}));
  }
  std::lock_guard lock(mutex_);
  ++counts_[request.node].parts_sent;
  return answer;
}

void NodeTransport::SetSendsMoreStats(NodeRank rank) {
  std::lock_guard lock(mutex_);
  counts_[rank].sends_more_stats = true;
}

Result<std::vector<io::FileInfo>> NodeTransport::Stat(const stage::StatRequest& request) {
  bool sends_more = false;
  {
    std::lock_guard lock(mutex_);
    ++counts_[request.node].stat_requests;
    sends_more = counts_[request.node].sends_more_stats;
  }
  FOREBAY_ASSIGN(std::vector<io::FileInfo> infos, Carry(request));
  // The last entries belong to no path. A caller that does not count them goes beyond its list.
  if (sends_more) infos.resize(request.paths.size() + 1);
  return infos;
}

std::uint64_t NodeTransport::stat_requests(NodeRank rank) const {
  std::lock_guard lock(mutex_);
  return counts_.at(rank).stat_requests;
}

std::uint64_t NodeTransport::parts_sent(NodeRank rank) const {
  std::lock_guard lock(mutex_);
  return counts_.at(rank).parts_sent;
}

std::uint64_t NodeTransport::extents_asked(NodeRank rank) const {
  std::lock_guard lock(mutex_);
  return counts_.at(rank).extents_asked;
}

std::uint64_t NodeTransport::row_requests(NodeRank rank) const {
  std::lock_guard lock(mutex_);
  return counts_.at(rank).row_requests;
}

std::uint64_t NodeTransport::chunk_requests(NodeRank rank) const {
  std::lock_guard lock(mutex_);
  return counts_.at(rank).chunk_requests;
}

fetch::ReaderPlace NodeTransport::place_told(NodeRank rank) const {
  std::lock_guard lock(mutex_);
  return counts_.at(rank).place;
}

std::unique_ptr<NodeTransport> MakeTransport(TransportKind kind) {
  if (kind == TransportKind::kGrpc) return std::make_unique<GrpcNodes>();
  return std::make_unique<InProcessNodes>();
}

std::string TransportName(TransportKind kind) {
  return kind == TransportKind::kGrpc ? "Grpc" : "InProcess";
}

}  // namespace forebay::peer
