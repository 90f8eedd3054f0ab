// LocalRows: answers a request for rows (RowSource) of another node, or of a batch of this node
// (OwnRows). The rows come from the tiers of this node, and from its decoded chunks if the data set
// is packed; chunks of packs can be asked for as they are stored. Extents that are on no tier are
// staged first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "proto/contract/limits.h"
#include "server/fetch/decode_room.h"
#include "server/fetch/decoded_cache.h"
#include "server/fetch/fetcher.h"
#include "server/fetch/found_rows.h"
#include "server/fetch/packed/packed_rows.h"
#include "server/fetch/row_source.h"
#include "server/io/clock.h"
#include "server/io/executor.h"
#include "server/stage/stager.h"

namespace forebay::fetch {

// The rows that another node asks for.
struct WantedRows {
  std::uint64_t fingerprint = 0;  // of the asking node's catalog
  std::vector<Row> rows;
  Need need = Need::kSamples;
  std::uint64_t bytes_max = ~std::uint64_t{0};  // of all rows, if there are several
  // Whether the node still waits for the answer; asked before each step. Null: it does.
  std::function<bool()> is_wanted = nullptr;
  // Called, perhaps several times, when the answer has to wait for the GFS, for memory, or for the
  // catalog.
  std::function<void()> waits = nullptr;
  // Another node asks, which can ask the next one if this node yields (stage::AskNext).
  bool has_substitutes = false;
};

// The objects that LocalRows uses; borrowed, and outlive all requests.
struct LocalRowsParts {
  stage::Stager& stager;
  Fetcher& fetcher;
  DecodedCache& decoded;
  io::Executor& executor;
  io::Clock& clock;
  // Whether calls to the GFS wait for a cap of the job, so that any thread of `executor` may. Null:
  // there are no caps.
  std::function<bool()> has_gfs_waiters = nullptr;
};

// Copies rows that were found to the memory of `rows`, which were asked for in the same order. If
// one of them has an error or another length (kInvalidArgument), nothing is written.
Status CopyRows(const FoundRows& found, std::span<const Row> rows);

// Thread-safe.
class LocalRows {
 public:
  // `decoded_bytes_max`: limit of the memory of decoded rows, and of chunks, of all requests
  // together.
  explicit LocalRows(const LocalRowsParts& parts,
                     std::uint64_t decoded_bytes_max = limits::kPeerDecodedBytesMax)
      : parts_(parts), room_(std::make_shared<DecodeRoom>(decoded_bytes_max)) {}
  ~LocalRows() { room_->Close(); }
  LocalRows(const LocalRows&) = delete;
  LocalRows& operator=(const LocalRows&) = delete;

  // Fills the rows, which must stay in place until `done`; each byte from SSD or the GFS is
  // verified. Starts staging the data set if it has not started. `done` is called once, from a
  // thread of the executor or of the stager. Errors are meant for another node
  // (stage::ErrorForOthers). kFailedPrecondition: this node has another catalog. kInvalidArgument:
  // there is no such row, or its memory has another length. kUnimplemented: the value has to be
  // decoded and has no fixed size. kDataLoss: it cannot be decoded, or the chunk is damaged.
  // kResourceExhausted: the rows take more than `bytes_max`.
  void Read(stage::Dataset& dataset, WantedRows wanted, RowSource::Done done);

  // Does what Read does, without a copy: finds the rows where they lie. The memory of `rows` is not
  // looked at, because the catalog says how long a row is. A row that does not exist, or that
  // cannot be decoded, has an error of its own. Decoded rows, and chunks, take part of
  // limits::kPeerDecodedBytesMax until they are let go of; a request waits for that without a
  // thread.
  using Found = std::function<void(Result<std::shared_ptr<const FoundRows>>)>;
  void Find(stage::Dataset& dataset, WantedRows wanted, Found done);

  // The first extent that the rows need and that is not here, for an error that names it. Nullopt:
  // there is none, or the data set is a pack, whose rows do not say in which extents they lie.
  std::optional<ExtentId> FirstMissing(const stage::Dataset& dataset, std::span<const Row> rows,
                                       Need need) const;

 private:
  struct Work;
  using WorkRef = std::shared_ptr<Work>;

  Status Plan(Work& work);
  void AwaitRoom(const WorkRef& work);
  void Start(const WorkRef& work);
  void Advance(const WorkRef& work, io::IoQueue& queue);

  const LocalRowsParts parts_;
  DecodeToolbox tools_;
  const std::shared_ptr<DecodeRoom> room_;
};

}  // namespace forebay::fetch
