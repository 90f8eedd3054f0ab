// Collectives over a Transport. They are made of messages, so that what they compute is specified
// and the same on every back end, and they are polled, so that a pipeline goes on meanwhile.
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

// Replaces leaves[0] by the sum of all in a binary tree over their index: neighbours first, then
// neighbouring pairs, and so on; what has no neighbour moves up as it is. The other leaves are
// used up. All have `count` elements.
template <typename T>
void SumTree(std::span<T* const> leaves, std::size_t count);
// The same into `sum`, which may be one of the leaves.
template <typename T>
void SumTree(std::span<T* const> leaves, std::size_t count, T* sum);

// Who takes part: ranks in ascending order, and where this one stands among them.
struct Members {
  std::vector<std::uint32_t> ranks;
  std::uint32_t self = 0;  // index into ranks

  std::uint32_t count() const { return static_cast<std::uint32_t>(ranks.size()); }
};

// kInvalidArgument where `rank` is no member, or the ranks are not ascending.
Result<Members> MakeMembers(std::vector<std::uint32_t> ranks, std::uint32_t rank);
// All ranks of the transport.
Members AllMembers(const Transport& transport);

// A collective under way.
class PendingCollective {
 public:
  virtual ~PendingCollective() = default;
  // Begins the messages of its first round. Once, before all else.
  virtual Status Begin(Transport& transport) = 0;
  // Goes as far as it can without waiting. nullopt: done; else a transfer that it waits for.
  // An error is final.
  virtual Result<std::optional<Ticket>> Advance(Transport& transport) = 0;
  // True once the last of its messages has been begun.
  virtual bool all_begun() const = 0;
};

// Begins it and advances until it is done. kDeadlineExceeded where one transfer takes longer than
// `timeout_ns`.
Status Finish(PendingCollective& pending, Transport& transport, std::uint64_t timeout_ns);

// Collectives that are under way at the same time. Members begin those they share in the same
// order; the queue sees to it that later rounds, too, come in this order, whatever arrives first:
// otherwise messages of one lane would meet the wrong receives.
class CollectiveQueue {
 public:
  // Begins its first round at once.
  Status Begin(std::uint32_t id, std::unique_ptr<PendingCollective> pending,
               Transport& transport);
  // Goes as far as it can without waiting. Returns the transfers that are waited for; empty where
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

// What a collective's messages are called. Its second round goes along `second`.
struct CollectiveTag {
  std::uint64_t step = 0;
  std::uint32_t edge = 0;
  Lane lane = Lane::kReduction;
  Lane second = Lane::kReductionReturn;
};

// The part of `values` that member `member` of `members` is in charge of: like the others' but for
// the last ones, which may be smaller or empty.
template <typename T>
std::span<T> ShareOf(std::span<T> values, std::uint32_t member, std::uint32_t members) {
  const std::size_t each = (values.size() + members - 1) / members;
  const std::size_t begin = std::min(values.size(), each * member);
  return values.subspan(begin, std::min(each, values.size() - begin));
}

// Elements that a member of a ReduceScatter or AllReduce of `count` holds beside its own until it
// is done: the others' parts of its share, which for the first member is the largest.
constexpr std::size_t ArrivingElements(std::size_t count, std::uint32_t members) {
  return members < 2 ? 0 : (count + members - 1) / members * (members - 1);
}

// Sums `values` over the members, in a binary tree over their index (SumTree), so that the bits do
// not depend on the timing. Each member sums its share, which arrives directly from all others:
// (n - 1) / n of the bytes leave each member, in n - 1 messages, and as many are held beside them
// (ArrivingElements). What is not in a member's share stays as it was there.
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

// A ReduceScatter whose sums every member then hands to all: each gets all of them, in two rounds
// of n - 1 messages.
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

// Gathers `own` of every member into `all`, in the order of members. Equal sizes.
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
