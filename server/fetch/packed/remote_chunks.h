// RemoteChunks: brings chunks of packs from the nodes that own their extents, as they are stored,
// for batches that decode them on this node. Batches that want a chunk at the same time get it
// once, and its memory is counted once.
//
//   RemoteChunks chunks(router, bytes_max);
//   if (!chunks.Bring(dataset, {wanted}, reader, deadline_ns,
//                     [](Result<std::vector<SentChunk>> sent) { ... })) { ... }
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/fetch/budget_share.h"
#include "server/fetch/decoded_cache.h"
#include "server/fetch/row_router.h"
#include "server/fetch/row_source.h"
#include "server/stage/dataset.h"

namespace forebay::fetch {

// A chunk's record, verified, and the right to its memory, which is given back after the memory.
class RemoteChunk {
 public:
  RemoteChunk(BudgetShare share, std::uint64_t bytes)
      : share_(std::move(share)), bytes_(static_cast<std::size_t>(bytes)) {}
  std::span<const std::byte> span() const { return bytes_.span(); }
  // Whether this node has read it itself, because no other one could be asked.
  bool is_own() const { return is_own_; }

  // --- for RemoteChunks, until the chunk is there --------------------------------------------
  std::span<std::byte> memory() { return bytes_.span(); }
  void SetIsOwn() { is_own_ = true; }

 private:
  BudgetShare share_;
  RawBytes bytes_;
  bool is_own_ = false;
};
// Its memory stays as long as there are references to it.
using SentChunk = std::shared_ptr<const RemoteChunk>;
// Those that a batch has, by their numbers in catalog::PackTable.
using SentChunks = std::unordered_map<std::uint64_t, SentChunk>;

// A chunk that a batch wants.
struct WantedRemote {
  std::uint64_t number = 0;     // in catalog::PackTable
  std::uint64_t bytes = 0;      // of its record
  std::uint64_t group_key = 0;  // of the group of its extent, for RowRouter
  Row row;                      // names it (Row::chunk); without memory
};

// Thread-safe. Outlives the calls of `done`.
class RemoteChunks {
 public:
  // The router is borrowed. `bytes_max`: limit of the memory of chunks, from when they are asked
  // for until nobody has a reference to them.
  RemoteChunks(RowRouter& router, std::uint64_t bytes_max)
      : router_(router), account_(std::make_shared<std::atomic<std::uint64_t>>(bytes_max)) {}

  // Asks for the chunks that are neither here nor under way for another batch. False: they would
  // take too much memory; nothing is asked for, and `done` is not called. Otherwise calls `done`
  // once, when none of them is under way any more; perhaps within this call. It gets the chunks in
  // the order of `wanted`, or the first error of what this call has asked for (RowRouter::Fill). A
  // chunk is null if the request of another batch has failed to bring it: ask again. kCancelled:
  // nobody wants them any more (`reader`). kUnavailable, from Expire: the deadline, of the router's
  // clock, is over. Requests for chunks that others wait for go on then.
  using Done = std::function<void(Result<std::vector<SentChunk>>)>;
  [[nodiscard]] bool Bring(stage::Dataset& dataset, const std::vector<WantedRemote>& wanted,
                           const RowReader& reader, std::int64_t deadline_ns, Done done);
  // Ends the calls whose deadlines are over. Call about once a second.
  void Expire(std::int64_t now_ns);

 private:
  // Dataset::number, and the number of the chunk.
  using Key = std::pair<std::uint64_t, std::uint64_t>;
  struct Call;
  struct Request;
  using CallRef = std::shared_ptr<Call>;
  using RequestRef = std::shared_ptr<Request>;
  // By node, in the order in which they are asked.
  using Requests = std::map<RowRouter::Turn, RequestRef>;

  std::vector<RowRouter::Turn> TurnsOf(const std::vector<WantedRemote>& wanted) const;
  std::optional<Requests> Join(std::uint64_t dataset_number,
                               const std::vector<WantedRemote>& wanted, const CallRef& call);
  void Land(const RequestRef& request, const Result<RowRouter::Filled>& filled);
  void Leave(const CallRef& call, const Error& error);
  void ForgetLocked(const Request& request) FOREBAY_REQUIRES(mutex_);
  void ForgetUnusedLocked() FOREBAY_REQUIRES(mutex_);
  static void End(const CallRef& call);

  RowRouter& router_;
  const BudgetShare::Account account_;
  Mutex mutex_;  // also guards the members of calls and requests until they end
  std::map<Key, RequestRef> under_way_ FOREBAY_GUARDED_BY(mutex_);
  // Chunks that have come. Those that nobody uses any more are removed now and then.
  std::map<Key, std::weak_ptr<const RemoteChunk>> sent_ FOREBAY_GUARDED_BY(mutex_);
  std::size_t used_ FOREBAY_GUARDED_BY(mutex_) = 0;  // of sent_, when they were removed last
};

}  // namespace forebay::fetch
