// ScanPass: catalogues and stages objects in one sequential pass, for formats whose samples are
// only known from their bytes (catalog::ScanPlan). Requests are kept in flight ahead of the
// scanner, across object boundaries. An extent is published as soon as the scanner has cut it, from
// the same bytes that the scanner has seen, so nothing is read twice.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/catalog_part.h"
#include "server/catalog/scan_plan.h"
#include "server/io/io_backend.h"
#include "server/stage/dataset.h"
#include "server/stage/extent_loader.h"
#include "server/stage/gfs/request_gate.h"
#include "server/tier/extent_key.h"
#include "server/tier/ram/ram_arena.h"

namespace forebay::stage {

// Single use; everything passed in is borrowed for its lifetime.
class ScanPass {
 public:
  struct Options {
    std::uint64_t request_bytes = 0;
    std::uint32_t depth = 1;
    bool past_caches = false;  // do not use bytes that this node has cached
    // Where the job has a cap on requests, each read takes a permit of this gate. Borrowed.
    RequestGate* gate = nullptr;
  };
  struct Hooks {
    // An extent is known by its key, and is about to be compared with its first read.
    std::function<void(const tier::ExtentKey&)> cut;
    std::function<Status(VerifiedExtent)> publish;
    std::function<Result<tier::ArenaBlock>(std::uint64_t bytes)> allocate;
    // An object has been scanned, and this is its part of the catalog.
    std::function<Status(ObjectId, const catalog::CatalogPart&)> scanned;
    // The bytes of an object were refused: it is no object of its format. The pass ends.
    std::function<void(ObjectId, const Error&)> refused;
  };

  // `idle_queue` is idle whenever an extent is published, unlike `queue`, which reads ahead.
  // `objects`: those of the plan that the pass scans, in this order.
  ScanPass(Dataset& dataset, const catalog::ScanPlan& plan, std::span<const ObjectId> objects,
           io::IoQueue& queue, io::IoQueue& idle_queue, const Options& options, Hooks hooks);

  // Reads every object once, up to the first one that is refused. Extents that were published
  // before an error stay published. kUnavailable with has_misread(): the scanner has seen wrong
  // bytes of an object, which therefore has to be scanned again.
  Status Run();
  // An extent did not match its first read, and a read past the caches of this node did. So the
  // boundaries of samples that the scanner has found are not those of the object.
  bool has_misread() const { return has_misread_; }
  // How many of the objects, from the first on, have their part of the catalog.
  std::size_t scanned() const { return scanned_; }

 private:
  // A request for a part of one object, in the order of the pass.
  struct Chunk {
    ObjectId object;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    bool done = false;
    std::shared_ptr<io::File> file;
    tier::ArenaBlock memory;
    std::optional<RequestGate::Permit> permit;  // while it is in flight
    std::span<std::byte> bytes() const { return memory.bytes().first(length); }
  };

  Status IssueAhead();
  // Submits the read of `chunk`, which has its memory. False: there is no permit for it now.
  Result<bool> Submit(Chunk& chunk);
  Status Reap();
  // Before something that may wait for others: gives back all permits, because the others may wait
  // for them.
  Status ReapBeforeWaiting();
  void Release(Chunk& chunk);
  Result<tier::ArenaBlock> Allocate(std::uint64_t bytes, const std::string& object);
  Status AwaitFront();
  const catalog::PlannedObject& ObjectOf(const Chunk& chunk) const {
    return plan_.objects[chunk.object.value()];
  }
  Status FeedFront();
  Status CheckUnchanged(const catalog::PlannedObject& object, const io::File& file);
  Status Scan(const Chunk& chunk, bool is_last, std::vector<catalog::CutExtent>& cut);
  Status Emit(const catalog::PlannedObject& object, const catalog::CutExtent& cut);
  Status ReadAgain(const catalog::PlannedObject& object, io::File& file, std::uint64_t offset,
                   std::span<std::byte> bytes);
  void DropChunksBefore(std::uint64_t offset);

  Dataset& dataset_;
  io::IoQueue& queue_;
  io::IoQueue& idle_queue_;
  const Options options_;
  const Hooks hooks_;
  const catalog::ScanPlan& plan_;
  const std::span<const ObjectId> objects_;
  const Priority priority_{kCataloguePriority};

  std::size_t next_object_ = 0;      // of the next request; in objects_
  std::uint64_t next_offset_ = 0;
  std::uint64_t issued_ = 0;         // sequence number of the next request
  std::uint64_t first_ = 0;          // sequence number of pending_.front()
  std::shared_ptr<io::File> file_;   // of next_object_
  std::deque<Chunk> pending_;        // submitted, not yet given to the scanner
  std::optional<catalog::ObjectScan> scan_;  // of the object of pending_.front()
  bool has_refused_ = false;          // an object's bytes
  bool has_misread_ = false;
  std::size_t scanned_ = 0;
  std::vector<Chunk> fed_;            // given to the scanner, may still be part of an extent
  std::vector<tier::ArenaBlock> spare_;
  std::vector<io::Completion> completions_;
};

}  // namespace forebay::stage
