// FakeDataService: the data service over a FakeDataset, from memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/testing/fake_dataset.h"
#include "client/testing/fake_faults.h"
#include "forebay/v1/data.grpc.pb.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::testing {

// Pieces of shared memory that contiguous batches are gathered into.
class FakeSlots {
 public:
  static constexpr std::uint32_t kSlotRegion = 1;
  FakeSlots(std::uint64_t slot_bytes, std::uint32_t count, bool sealed);

  FakeRegion& region() { return region_; }
  // The offset of a free slot; a broken invariant where none is left.
  std::uint64_t Take();
  void GiveBack(std::uint64_t offset);
  // From now on nothing is written any more, as after a crash, and no slot becomes free: a daemon
  // that ends takes none for requests that still arrive.
  void Freeze();
  bool is_frozen() const;
  std::uint64_t slot_bytes() const { return slot_bytes_; }

 private:
  std::uint64_t slot_bytes_;
  FakeRegion region_;
  mutable Mutex mutex_;
  bool frozen_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::vector<std::uint64_t> free_ FOREBAY_GUARDED_BY(mutex_);
};

// The batches that a reader has, over all its calls, as the daemon keeps them.
class FakeHeld {
 public:
  explicit FakeHeld(FakeSlots& slots) : slots_(slots) {}

  // A batch, with a slot or without one. Returns its id.
  std::uint64_t Add();
  void SetSlot(std::uint64_t id, std::optional<std::uint64_t> slot);
  bool Release(std::uint64_t id);
  // Returns the ids of those that stay.
  std::vector<std::uint64_t> ReleaseAllBut(const std::vector<std::uint64_t>& ids);
  std::size_t size() const;

 private:
  FakeSlots& slots_;
  mutable Mutex mutex_;
  std::uint64_t next_id_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, std::optional<std::uint64_t>> slot_of_ FOREBAY_GUARDED_BY(mutex_);
};

// By OpenStream.reader.
class FakeReaders {
 public:
  std::shared_ptr<FakeHeld> Find(std::uint64_t reader, FakeSlots& slots);
  void Forget(std::uint64_t reader);
  std::size_t size() const;

 private:
  mutable Mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<FakeHeld>> held_ FOREBAY_GUARDED_BY(mutex_);
};

struct FakeServiceState {
  FakeDataset& dataset;
  FakeSlots& slots;
  FakeFaults& faults;
  FakeCounters& counters;
  std::string job_id;
  std::uint64_t generation = 0;
  std::shared_ptr<FakeReaders> readers = std::make_shared<FakeReaders>();
};

class FakeDataService final : public v1::Data::CallbackService {
 public:
  explicit FakeDataService(FakeServiceState state) : state_(std::move(state)) {}

  grpc::ServerUnaryReactor* Hello(grpc::CallbackServerContext* context,
                                  const v1::HelloRequest* request,
                                  v1::HelloReply* reply) override;
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const v1::DescribeRequest* request,
                                     v1::DescribeReply* reply) override;
  grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamReply>* Stream(
      grpc::CallbackServerContext* context) override;

  // Readers with batches that are kept for them, or a call that is open.
  std::size_t reader_count() const { return state_.readers->size(); }

 private:
  FakeServiceState state_;
};

}  // namespace forebay::testing
