// Gatherer: turns the samples of a batch into bytes that a reader can use: views of extents in RAM,
// or rows in a slot. It does so in two steps, because extents may have to be fetched from the GFS
// between them: Plan says which extents the batch needs, and Gather makes the batch when they are
// pinned. There are two: RawGatherer for data sets that are stored uncompressed, PackedGatherer for
// data sets whose samples are decoded.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "proto/contract/result.h"
#include "server/fetch/fetcher.h"
#include "server/fetch/packed/remote_chunks.h"
#include "server/fetch/read_means.h"
#include "server/fetch/row_router.h"
#include "server/stream/assembled_batch.h"
#include "server/stream/batch_plan.h"
#include "server/stream/packed/slot_board.h"
#include "server/stream/stream_spec.h"
#include "server/stream/view_pins.h"
#include "server/tier/ram/ram_arena.h"

namespace forebay::stream {

// Says what a batch of a packed data set can get from other nodes. Everything is borrowed.
struct OtherNodes {
  const fetch::Fetcher* fetcher = nullptr;    // says which extents they supply; null: none
  const fetch::SentChunks* chunks = nullptr;  // that have come for the batch; null: none
  bool are_chunks_asked = true;               // whether further chunks may be asked for
};

// Tells Plan how to plan a batch of a packed data set. What it borrows must stay until Forget.
struct PackedPlan {
  // List the extents of samples that are decoded already, too, for a batch that must not depend on
  // what is kept.
  bool all_extents = false;
  OpenSlots open = {};  // slots of the stream's batches that are under way
  OtherNodes others = {};
};

// What a batch is gathered with; borrowed.
struct GatherMeans {
  // The planned extents, in order. Null: it is on no tier of this node, and RowRouter brings the
  // samples in it (never with a packed data set, whose plan leaves such extents out).
  fetch::ReadMeans read;
  ViewPins& pins;
  ViewUse view_use = ViewUse::kNothing;
  tier::RamArena& slots;  // memory for samples that must be copied, read or decoded
  // Receives the rows that fetch::RowRouter brings. Their memory is part of the batch, which is
  // complete once they are filled.
  std::vector<fetch::RoutedRow>& rows;
};

// Where a row's value of a variable field lies in GatheredValues::bytes.
struct GatheredValue {
  std::uint64_t offset = 0, length = 0;
};

// The decoded values of variable size of a batch that found no slot. Its next attempt uses them
// instead of decoding again.
struct GatheredValues {
  std::vector<std::vector<GatheredValue>> values;  // [field][row]; of fixed fields empty
  std::vector<std::byte> bytes;
  BatchCounts counted;  // what they took
  bool is_complete = false;
};

// One batch at a time: Plan, Gather, Forget. Keeps its buffers for the next batch, of any stream.
// Not thread-safe.
class Gatherer {
 public:
  Gatherer() = default;
  virtual ~Gatherer() = default;
  Gatherer(const Gatherer&) = delete;
  Gatherer& operator=(const Gatherer&) = delete;

  // Finds out what the batch needs: extents() lists the extents, each once. What is decoded already
  // needs none, so the next Plan of the same batch may list others. The samples of
  // `batch` are borrowed until Forget.
  virtual Status Plan(const StreamSpec& spec, const BatchPlan& batch, PackedPlan packed) = 0;
  virtual std::span<const ExtentId> extents() const = 0;
  // The chunks that other nodes have to send before Gather can be called. Once they are there
  // (OtherNodes::chunks), the batch is planned again.
  virtual std::span<const fetch::WantedRemote> missing_chunks() const { return {}; }

  // Fills the fields of `batch`, its memory and its counts: it is complete then, but for
  // means.rows. kResourceExhausted: there is no slot memory now; repeat the call later. kDataLoss
  // with copies in means.read.bad: report them (Fetcher::ReportBad) and repeat. kUnavailable: the
  // GFS failed to read pieces.
  virtual Status Gather(const StreamSpec& spec, const GatherMeans& means,
                        AssembledBatch& batch) = 0;

  // Takes the values that a Gather without slot memory has decoded; may be empty.
  virtual GatheredValues TakeGathered() { return {}; }
  // Gives them back, after Plan and before Gather of the same batch.
  virtual void GiveGathered(GatheredValues) {}
  // Releases what a plan holds: decoded chunks, slots.
  virtual void Forget() {}
};

}  // namespace forebay::stream
