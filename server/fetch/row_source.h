// RowSource: the interface through which this node gets rows (one field of one sample each) that
// another node holds: many rows of one owner in one call. The bytes are written where the caller
// wants them, into the slot of the batch. Chunks of packs that this node decodes itself are asked
// for as rows, too. A transport of `peer` carries the request, and LocalRows answers it on the
// other node, from RAM, SSD or the GFS. RowRouter chooses the node.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/stage/dataset.h"

namespace forebay::fetch {

struct Row {
  SampleId sample;
  FieldId field;
  // Receives the row. It is as long as the row, whose length both nodes know from the catalog.
  std::span<std::byte> memory;
  // 0: the row is the value of the field. Otherwise it is the record of a chunk as the pack has it:
  // of the chunks that hold the sample, the one with this number, from 1 on. All rows of a request
  // are of the same kind.
  std::uint32_t chunk = 0;
};

// How a reader uses the extents that it takes samples of.
enum class Need : std::uint8_t {
  kRuns,     // most of their samples, soon: extents are fetched as a whole
  kSamples,  // single samples: an extent without a home is read in pieces
};

// Where a reader is in the order of its stream. The owner of the rows learns from it which extents
// this reader still needs (stream/future_use.h).
struct ReaderPlace {
  std::uint64_t order = 0;  // OrderSpec::Fingerprint; 0: the place is not known
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;  // of the stream
  EpochId epoch{};
  std::uint64_t position = 0;  // the reader has all that is before it in the epoch

  bool operator==(const ReaderPlace&) const = default;
};

// Who wants rows, and what for.
struct RowReader {
  Need need = Need::kSamples;
  ReaderPlace place = {};
  // Requested when nobody wants the rows any more. Then the request may end early, with kCancelled.
  std::stop_token unwanted = {};
};

struct RowRequest {
  NodeRank node;  // the node that is asked
  stage::Dataset* dataset = nullptr;
  std::vector<Row> rows;
  RowReader reader;
  std::int64_t deadline_ns = 0;  // by io::Clock; then the source gives up
};

// Thread-safe.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // Fills all rows and calls `done` once, from any thread, perhaps within this call. Rows that
  // arrive have been verified: against the checksums of their first read by the node that holds
  // them, and against the sender's checksum by this one. After an error some may have been written.
  // The rows' memory must stay in place until `done`. stage::IsNoAnswer says whether an error means
  // that the node did not answer, and stage::IsTooBusy whether it refused until the deadline, or
  // could not be asked before it.
  using Done = std::function<void(const Status&)>;
  virtual void Read(std::shared_ptr<const RowRequest> request, Done done) = 0;
  // Call when a node has sent a chunk that is not the pack's, which only the reader of the catalog
  // can tell.
  virtual void ReportWrong(NodeRank) {}
};

}  // namespace forebay::fetch
