// GfsReader: reads extents, or pieces of them, from a data set's objects, in large requests. A
// large object is opened once and stays open between extents. If an object differs from what the
// catalog says, the read fails with an error that names the object.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/catalog/catalog.h"
#include "server/io/io_backend.h"
#include "server/stage/dataset.h"
#include "server/stage/gfs/gfs_calls.h"
#include "server/stage/gfs/gfs_throttle.h"
#include "server/stage/gfs/request_gate.h"
#include "server/tier/piece_source.h"

namespace forebay::stage {

// Thread-safe; each caller brings its own queue.
class GfsReader {
 public:
  // All are borrowed. `gate` decides which extent's requests come first. `calls` tells which
  // objects do not answer; null: this is not checked. `throttle` is that of the back end; null:
  // there is none.
  GfsReader(std::uint64_t request_bytes, RequestGate& gate, GfsCalls* calls = nullptr,
            GfsThrottle* throttle = nullptr)
      : request_bytes_(request_bytes), gate_(gate), calls_(calls), throttle_(throttle) {}

  // Fills `image`, as long as the extent, with the extent's bytes. kFailedPrecondition: an object
  // has another size or modification time than in the catalog, before or after the read; kDataLoss:
  // an object ended early, or reading failed. After a failure the next read opens the object again.
  // With `past_caches`, bytes that this node has cached are not used.
  Status ReadImage(io::IoQueue& queue, Dataset& dataset, const catalog::Catalog& catalog,
                   ExtentId extent, const Priority& priority, std::span<std::byte> image,
                   bool past_caches = false);
  // As ReadImage, for a run of whole objects whose catalog is still being built.
  Status ReadRun(io::IoQueue& queue, Dataset& dataset,
                 std::span<const catalog::ObjectInfo> objects, const Priority& priority,
                 std::span<std::byte> image, bool past_caches = false);
  // Fills the memory of all `reads`, ranges of extents of `catalog`, in requests of at most
  // `request_bytes` and limits::kPieceRequestBytesMax, as many at a time as `queue` and gate allow.
  // Errors as for ReadImage; also kUnavailable, without waiting, if an object has not answered
  // other readers for stage.hung_after.
  Status ReadPieces(io::IoQueue& queue, Dataset& dataset, const catalog::Catalog& catalog,
                    std::span<const tier::SourceRead> reads, const Priority& priority);
  // Whether one of the extent's objects has not answered other readers for stage.hung_after.
  bool IsBlocked(const Dataset& dataset, const catalog::Catalog& catalog, ExtentId extent) const;
  // Closes the objects of `dataset` that are open. Call once the data set is staged.
  void CloseObjects(const Dataset& dataset);

 private:
  struct ObjectKey {
    const Dataset* dataset;
    ObjectId object;
    bool operator==(const ObjectKey&) const = default;
  };
  struct ObjectKeyHash {
    std::size_t operator()(const ObjectKey& key) const {
      return IdHash()(key.object) ^ reinterpret_cast<std::uintptr_t>(key.dataset);
    }
  };
  // A range of an object, and the memory to fill with it.
  struct ObjectRange {
    ObjectId object;
    std::uint64_t offset = 0;
    std::span<std::byte> memory;
  };
  // One object. The first thread that needs it opens it, while others wait.
  struct OpenObject {
    Mutex mutex;
    // Set once, with the mutex held. A thread that got the object from OpenShared reads it
    // without the mutex.
    std::unique_ptr<io::File> file;
  };

  Result<std::shared_ptr<OpenObject>> OpenShared(Dataset& dataset,
                                                 const catalog::Catalog& catalog,
                                                 ObjectId object);
  // kUnavailable if other threads have waited for the object for too long.
  Status CheckAnswers(const Dataset& dataset, const catalog::Catalog& catalog,
                      ObjectId object) const;
  // Forgets the handle `failed`, unless it has been replaced already.
  void Forget(const ObjectKey& key, const std::shared_ptr<OpenObject>& failed);
  static Status CutAtObjects(const catalog::Catalog& catalog, const tier::SourceRead& read,
                             std::vector<ObjectRange>& ranges);
  // Whether the object is still what was opened, after reads of a handle that stays open.
  Status CheckAfterRead(Dataset& dataset, const catalog::ObjectInfo& object, const io::File& file);
  // Opens all objects of `ranges`, then reads them.
  Status ReadRanges(io::IoQueue& queue, Dataset& dataset, const catalog::Catalog& catalog,
                    std::span<const ObjectRange> ranges, const Priority& priority);
  Status ReadRange(io::IoQueue& queue, Dataset& dataset, const catalog::Catalog& catalog,
                   const catalog::ExtentInfo& info, const Priority& priority,
                   std::span<std::byte> image, bool past_caches);

  const std::uint64_t request_bytes_;
  RequestGate& gate_;
  GfsCalls* const calls_;
  GfsThrottle* const throttle_;
  Mutex mutex_;
  std::unordered_map<ObjectKey, std::shared_ptr<OpenObject>, ObjectKeyHash> open_
      FOREBAY_GUARDED_BY(mutex_);
  // Keys of open_, in the order of opening.
  std::deque<ObjectKey> oldest_ FOREBAY_GUARDED_BY(mutex_);
};

// The group that all requests for the object have in the gate.
RequestGate::Group GroupOf(const Dataset& dataset, std::string_view path);

// kFailedPrecondition, with the object and the remedy, if the object changed since it was
// catalogued.
Status CheckObjectUnchanged(const Dataset& dataset, const catalog::ObjectInfo& object,
                            const io::File& file);

// Opens an object and checks that it is unchanged.
Result<std::unique_ptr<io::File>> OpenObjectChecked(Dataset& dataset,
                                                    const catalog::ObjectInfo& object);

}  // namespace forebay::stage
