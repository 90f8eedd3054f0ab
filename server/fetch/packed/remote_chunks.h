// RemoteChunks: brings chunks of packs from the nodes that own their extents, as they are stored,
// for batches that decode them on this node. Batches that want a chunk at the same time get it
// once.
//
//   RemoteChunks chunks(router);
//   chunks.Bring(dataset, {wanted}, reader, [](Result<std::vector<SentChunk>> sent) { ... });
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/fetch/decoded_cache.h"
#include "server/fetch/row_router.h"
#include "server/fetch/row_source.h"
#include "server/stage/dataset.h"

namespace forebay::fetch {

// A chunk's record, verified. Its memory stays as long as there are references to it.
using SentChunk = std::shared_ptr<const RawBytes>;
// Those that a batch has, by their numbers in catalog::PackTable.
using SentChunks = std::unordered_map<std::uint64_t, SentChunk>;

// A chunk that a batch wants.
struct WantedRemote {
  std::uint64_t number = 0;     // in catalog::PackTable
  std::uint64_t bytes = 0;      // of its record
  std::uint64_t group_key = 0;  // of the group of its extent, for RowRouter
  Row row;                      // names it (Row::chunk); without memory
};

// Thread-safe. Outlives the calls of `done`. The memory is limited by the callers: they keep the
// chunks, and know beforehand how many bytes they take.
class RemoteChunks {
 public:
  // Borrowed.
  explicit RemoteChunks(RowRouter& router) : router_(router) {}

  // Asks for the chunks that are neither here nor under way for another batch. Calls `done` once,
  // when none of them is under way any more; perhaps within this call. It gets the chunks in the
  // order of `wanted`, or the first error of what this call has asked for (RowRouter::Fill). A
  // chunk is null if the request of another batch has failed to bring it: ask again.
  using Done = std::function<void(Result<std::vector<SentChunk>>)>;
  void Bring(stage::Dataset& dataset, const std::vector<WantedRemote>& wanted, RowReader reader,
             Done done);

 private:
  // Dataset::number, and the number of the chunk.
  using Key = std::pair<std::uint64_t, std::uint64_t>;
  // One call of Bring.
  struct Call {
    std::vector<SentChunk> chunks;
    std::optional<Error> error;
    std::size_t left = 1;  // chunks under way, and one for Bring itself
    Done done;
  };
  // A place of a call that waits for a chunk.
  struct Place {
    std::shared_ptr<Call> call;
    std::size_t index = 0;
  };
  // A chunk under way.
  struct Flight {
    std::shared_ptr<RawBytes> memory;
    std::vector<Place> places;
  };

  std::vector<RoutedRow> Join(std::uint64_t dataset_number,
                              const std::vector<WantedRemote>& wanted,
                              const std::shared_ptr<Call>& call, std::vector<Key>& asked);
  void Land(const std::vector<Key>& asked, const std::shared_ptr<Call>& call,
            const Status& status);
  void ForgetUnusedLocked() FOREBAY_REQUIRES(mutex_);
  static void End(const std::vector<std::shared_ptr<Call>>& calls);

  RowRouter& router_;
  Mutex mutex_;  // also guards the members of all calls until they end
  std::map<Key, Flight> flights_ FOREBAY_GUARDED_BY(mutex_);
  // Chunks that have come. Those that nobody uses any more are removed now and then.
  std::map<Key, std::weak_ptr<const RawBytes>> sent_ FOREBAY_GUARDED_BY(mutex_);
  std::size_t used_ FOREBAY_GUARDED_BY(mutex_) = 0;  // of sent_, when they were removed last
};

}  // namespace forebay::fetch
