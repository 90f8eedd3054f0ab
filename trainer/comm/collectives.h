// Collective operations over a Transport: all-reduce, reduce-scatter, all-gather, broadcast. They
// are made of messages, so that what they compute is specified here and the same on every back end.
// They are polled, so that a pipeline can compute while they are under way.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/comm/transport/transport.h"

namespace forebay::train {

// Replaces leaves[0] by the sum of all leaves, which have `count` elements each. The sum is a
// binary tree over the index: neighbours are added first, then neighbouring pairs, and so on; a
// leaf without a neighbour moves up unchanged. The other leaves are overwritten.
template <typename T>
void SumTree(std::span<T* const> leaves, std::size_t count);
// Writes the same sum to `sum`, which may be one of the leaves.
template <typename T>
void SumTree(std::span<T* const> leaves, std::size_t count, T* sum);

// The ranks that take part in a collective, in ascending order, and this rank's index among them.
struct Members {
  std::vector<std::uint32_t> ranks;
  std::uint32_t self = 0;  // index into ranks

  std::uint32_t count() const { return static_cast<std::uint32_t>(ranks.size()); }
};

// kInvalidArgument if `rank` is not among the ranks, or if these are not ascending.
Result<Members> MakeMembers(std::vector<std::uint32_t> ranks, std::uint32_t rank);
// Returns all ranks of the transport.
Members AllMembers(const Transport& transport);

// A collective under way.
class PendingCollective {
 public:
  virtual ~PendingCollective() = default;
  // Begins the messages of the first round. Call it once, before all other calls.
  virtual Status Begin(Transport& transport) = 0;
  // Goes as far as possible without waiting. Returns nullopt when the collective is done, else a
  // transfer that it waits for. An error is final.
  virtual Result<std::optional<Ticket>> Advance(Transport& transport) = 0;
  // True once the last of its messages has been begun.
  virtual bool all_begun() const = 0;
};

// Begins a collective and advances it until it is done. kDeadlineExceeded if one transfer takes
// longer than `timeout_ns`.
Status Finish(PendingCollective& pending, Transport& transport, std::uint64_t timeout_ns);

// Collectives that are under way at the same time. Members begin the collectives that they share in
// the same order. The queue also begins later rounds in this order, whatever arrives first:
// otherwise messages of one lane would meet the wrong receives.
class CollectiveQueue {
 public:
  // Begins the first round at once.
  Status Begin(std::uint32_t id, std::unique_ptr<PendingCollective> pending,
               Transport& transport);
  // Goes as far as possible without waiting. Returns the transfers that are waited for; none if
  // nothing is under way.
  Result<std::vector<Ticket>> Advance(Transport& transport);
  bool Done(std::uint32_t id) const;

 private:
  struct Entry {
    std::uint32_t id = 0;
    std::unique_ptr<PendingCollective> pending;
  };
  std::vector<Entry> entries_;  // in the order of Begin
};

// The name of a collective's messages. Messages of the second round travel on the lane `second`.
struct CollectiveTag {
  std::uint64_t step = 0;
  std::uint32_t edge = 0;
  Lane lane = Lane::kReduction;
  Lane second = Lane::kReductionReturn;
};

// The part of `values` that member `member` of `members` sums. Shares have equal sizes, except that
// the last ones may be smaller or empty.
template <typename T>
std::span<T> ShareOf(std::span<T> values, std::uint32_t member, std::uint32_t members) {
  const std::size_t each = (values.size() + members - 1) / members;
  const std::size_t begin = std::min(values.size(), each * member);
  return values.subspan(begin, std::min(each, values.size() - begin));
}

// How many elements a member of a ReduceScatter or AllReduce of `count` elements holds beside its
// own until it is done: the other members' parts of its share. The result is for the first member,
// whose share is the largest.
constexpr std::size_t ArrivingElements(std::size_t count, std::uint32_t members) {
  return members < 2 ? 0 : (count + members - 1) / members * (members - 1);
}

// Sums `values` over the members, in a binary tree over their index (SumTree), so that the bits do
// not depend on timing. Each member sums its share, for which it receives the values of all other
// members directly: (n - 1) / n of the bytes leave each member, in n - 1 messages, and as many
// bytes are held beside them (ArrivingElements). Outside of a member's share its values stay
// unchanged.
template <typename T>
class ReduceScatter final : public PendingCollective {
 public:
  ReduceScatter(Members members, const CollectiveTag& tag, std::span<T> values);
  Status Begin(Transport& transport) override;
  Result<std::optional<Ticket>> Advance(Transport& transport) override;
  bool all_begun() const override { return true; }

 private:
  void SumShare();

  Members members_;
  CollectiveTag tag_;
  std::span<T> values_;
  std::unique_ptr<T[]> arrived_;  // the other members' parts of this one's share
  std::vector<Ticket> under_way_;
  bool summed_ = false;
};

// A ReduceScatter, after which every member sends its sums to all others. So every member gets all
// sums, in two rounds of n - 1 messages.
template <typename T>
class AllReduce final : public PendingCollective {
 public:
  AllReduce(Members members, const CollectiveTag& tag, std::span<T> values);
  Status Begin(Transport& transport) override { return sums_.Begin(transport); }
  Result<std::optional<Ticket>> Advance(Transport& transport) override;
  bool all_begun() const override { return summed_; }

 private:
  Status BeginGather(Transport& transport);

  Members members_;
  CollectiveTag tag_;
  std::span<T> values_;
  ReduceScatter<T> sums_;
  std::vector<Ticket> under_way_;
  bool summed_ = false;
};

// Gathers `own` of every member into `all`, in the order of the members. All members pass the same
// size.
class AllGather final : public PendingCollective {
 public:
  AllGather(Members members, const CollectiveTag& tag, std::span<const std::byte> own,
            std::span<std::byte> all);
  Status Begin(Transport& transport) override;
  Result<std::optional<Ticket>> Advance(Transport& transport) override;
  bool all_begun() const override { return true; }

 private:
  Members members_;
  CollectiveTag tag_;
  std::span<const std::byte> own_;
  std::span<std::byte> all_;
  std::vector<Ticket> under_way_;
};

// Replaces `bytes` by member `root`'s, along a binomial tree.
class Broadcast final : public PendingCollective {
 public:
  Broadcast(Members members, const CollectiveTag& tag, std::span<std::byte> bytes,
            std::uint32_t root);
  Status Begin(Transport& transport) override;
  Result<std::optional<Ticket>> Advance(Transport& transport) override;
  bool all_begun() const override { return arrived_; }

 private:
  std::uint32_t place() const;  // counts from the root
  std::uint32_t RankAt(std::uint32_t place) const;
  Status BeginSends(Transport& transport);

  Members members_;
  CollectiveTag tag_;
  std::span<std::byte> bytes_;
  std::uint32_t root_ = 0;
  std::vector<Ticket> under_way_;
  bool arrived_ = false;
};

// Sums `values` over the members in buckets of `bucket_bytes`, all of which are begun at once, as a
// step's plan does it. For measurements: a step runs its collectives through the plan runner.
// Messages are named by `step`, a number that no two calls share.
Status ReduceInBuckets(Transport& transport, const Members& members, std::span<float> values,
                       std::uint64_t bucket_bytes, std::uint64_t step, std::uint64_t timeout_ns);

}  // namespace forebay::train
