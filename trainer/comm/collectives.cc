// All collectives are built from the non-blocking messages of a Transport. Each is a small state
// machine: Begin posts the messages of its first round, Advance tests them and posts the next
// round. The plan runner calls Advance between the instructions of a step, because MPI moves no
// bytes while nobody calls it. Receives are always posted before the sends to the same member, so
// that a message finds its place when it arrives.
#include "trainer/comm/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "proto/contract/check.h"

namespace forebay::train {
namespace {

// The transfers that are not done yet; the first of them, where there is one.
Result<std::optional<Ticket>> FirstUndone(std::vector<Ticket>& under_way, Transport& transport) {
  std::size_t kept = 0;
  for (std::size_t at = 0; at < under_way.size(); ++at) {
    FOREBAY_ASSIGN(const bool done, transport.Test(under_way[at]));
    if (!done) under_way[kept++] = under_way[at];
  }
  under_way.resize(kept);
  if (under_way.empty()) return std::optional<Ticket>();
  return std::optional<Ticket>(under_way.front());
}

// The round stands where a pipeline message has its micro-batch: rounds of one collective cannot be
// mistaken for each other.
MessageTag TagOf(const CollectiveTag& tag, std::uint32_t round) {
  return {.step = tag.step, .micro_batch = round, .edge = tag.edge, .samples_hash = 0};
}

}  // namespace

namespace {

// Plain loops of additions. The compiler may use vectors for them, which does not change a bit,
// because every element has its own sum.
template <typename T>
void AddInto(T* sum, const T* addend, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) sum[i] += addend[i];
}

}  // namespace

// At stride s, leaf k takes leaf k + s, for every k that is a multiple of 2 s. The last addition is
// left to the end, where it writes straight to `sum`.
template <typename T>
void SumTree(std::span<T* const> leaves, std::size_t count, T* sum) {
  // Piece by piece, so that partial sums stay in the caches.
  constexpr std::size_t kBlock = 4096;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t end = std::min(count, begin + kBlock);
    std::size_t stride = 1;
    for (; 2 * stride < leaves.size(); stride *= 2) {
      for (std::size_t at = 0; at + stride < leaves.size(); at += 2 * stride) {
        AddInto(leaves[at], leaves[at + stride], begin, end);
      }
    }
    // Either operand may stand where the sum belongs: addition commutes, bit for bit.
    const T* addend = stride < leaves.size() ? leaves[stride] : nullptr;
    if (sum == addend) {
      addend = leaves.front();
    } else if (sum != leaves.front()) {
      std::copy(leaves.front() + begin, leaves.front() + end, sum + begin);
    }
    if (addend != nullptr) AddInto(sum, addend, begin, end);
  }
}

template <typename T>
void SumTree(std::span<T* const> leaves, std::size_t count) {
  SumTree<T>(leaves, count, leaves.front());
}

template void SumTree<float>(std::span<float* const>, std::size_t);
template void SumTree<double>(std::span<double* const>, std::size_t);
template void SumTree<float>(std::span<float* const>, std::size_t, float*);
template void SumTree<double>(std::span<double* const>, std::size_t, double*);

Result<Members> MakeMembers(std::vector<std::uint32_t> ranks, std::uint32_t rank) {
  const auto found = std::ranges::find(ranks, rank);
  const bool ascending =
      std::ranges::adjacent_find(ranks, std::greater_equal<>()) == ranks.end();
  if (found == ranks.end() || !ascending) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("rank {} among the members {}", rank, fmt::join(ranks, " ")));
  }
  const auto self = static_cast<std::uint32_t>(found - ranks.begin());
  // `self` is the member's index, not its rank: shares and the order of sums follow the index.
  return Members{.ranks = std::move(ranks), .self = self};
}

Members AllMembers(const Transport& transport) {
  Members members;
  for (std::uint32_t rank = 0; rank < transport.size(); ++rank) members.ranks.push_back(rank);
  members.self = transport.rank();
  return members;
}

// The timeout is for each transfer, not for the whole collective: it bounds the silence of a peer,
// and does not depend on how much is reduced.
Status Finish(PendingCollective& pending, Transport& transport, std::uint64_t timeout_ns) {
  FOREBAY_TRY(pending.Begin(transport));
  while (true) {
    FOREBAY_ASSIGN(const std::optional<Ticket> undone, pending.Advance(transport));
    if (!undone) return {};
    FOREBAY_TRY(transport.AwaitAny({&*undone, 1}, timeout_ns));
  }
}

Status CollectiveQueue::Begin(std::uint32_t id, std::unique_ptr<PendingCollective> pending,
                              Transport& transport) {
  // The first round needs no turn: Begin is called in the same order by all members.
  FOREBAY_TRY(pending->Begin(transport));
  entries_.push_back({.id = id, .pending = std::move(pending)});
  return {};
}

Result<std::vector<Ticket>> CollectiveQueue::Advance(Transport& transport) {
  std::vector<Ticket> waited;
  std::vector<Entry> left;
  // A collective may begin its second round only after those before it have begun theirs. Otherwise
  // two ranks could begin second rounds in different orders, depending on what arrives first, and
  // their messages would meet the wrong receives, because a lane keeps its order.
  bool in_turn = true;
  for (Entry& entry : entries_) {
    if (in_turn) {
      FOREBAY_ASSIGN(const std::optional<Ticket> undone, entry.pending->Advance(transport));
      if (!undone) continue;
      waited.push_back(*undone);
      in_turn = entry.pending->all_begun();
    }
    left.push_back(std::move(entry));
  }
  entries_ = std::move(left);
  return waited;
}

// A collective that is done leaves the queue. An id that was never begun counts as done, too,
// which the plan's checker rules out.
bool CollectiveQueue::Done(std::uint32_t id) const {
  return std::ranges::find(entries_, id, &Entry::id) == entries_.end();
}

template <typename T>
ReduceScatter<T>::ReduceScatter(Members members, const CollectiveTag& tag, std::span<T> values)
    : members_(std::move(members)), tag_(tag), values_(values) {
  const std::size_t own = ShareOf(values_, members_.self, members_.count()).size();
  // Not zeroed: every element is received before it is read.
  arrived_ = std::make_unique_for_overwrite<T[]>(own * (members_.count() - 1));
}

// One receive and one send for each other member.
template <typename T>
Status ReduceScatter<T>::Begin(Transport& transport) {
  const std::size_t own = ShareOf(values_, members_.self, members_.count()).size();
  // Every other member gets its share of our values, and sends its values of our share.
  std::size_t slot = 0;
  for (std::uint32_t member = 0; member < members_.count(); ++member) {
    if (member == members_.self) continue;
    const std::span<T> part(arrived_.get() + own * slot++, own);
    FOREBAY_ASSIGN(const Ticket receive,
                   transport.BeginReceive(members_.ranks[member], tag_.lane, TagOf(tag_, 0),
                                          std::as_writable_bytes(part)));
    FOREBAY_ASSIGN(const Ticket send,
                   transport.BeginSend(members_.ranks[member], tag_.lane, TagOf(tag_, 0),
                                       std::as_bytes(ShareOf(values_, member,
                                                             members_.count()))));
    under_way_.push_back(receive);
    under_way_.push_back(send);
  }
  return {};
}

template <typename T>
void ReduceScatter<T>::SumShare() {
  const std::span<T> own = ShareOf(values_, members_.self, members_.count());
  std::vector<T*> leaves;
  std::size_t slot = 0;
  for (std::uint32_t member = 0; member < members_.count(); ++member) {
    // The leaves are in the order of members, so that all members sum in one order whatever arrived
    // first.
    leaves.push_back(member == members_.self ? own.data()
                                             : arrived_.get() + own.size() * slot++);
  }
  SumTree<T>(leaves, own.size(), own.data());
}

template <typename T>
Result<std::optional<Ticket>> ReduceScatter<T>::Advance(Transport& transport) {
  FOREBAY_ASSIGN(std::optional<Ticket> undone, FirstUndone(under_way_, transport));
  if (undone || summed_) return undone;
  // Sums once. A finished collective may be advanced again by a caller that polls several.
  summed_ = true;
  SumShare();
  return undone;
}

template <typename T>
AllReduce<T>::AllReduce(Members members, const CollectiveTag& tag, std::span<T> values)
    : members_(members), tag_(tag), values_(values), sums_(std::move(members), tag, values) {}

// The second round: the sums of this member's share go to all others, and theirs come.
template <typename T>
Status AllReduce<T>::BeginGather(Transport& transport) {
  const std::span<T> own = ShareOf(values_, members_.self, members_.count());
  for (std::uint32_t member = 0; member < members_.count(); ++member) {
    if (member == members_.self) continue;
    // The sums of another member's share go where this member's own addends stood. These are no
    // longer needed: they were sent in the first round, which is over.
    const std::span<T> theirs = ShareOf(values_, member, members_.count());
    FOREBAY_ASSIGN(const Ticket receive,
                   transport.BeginReceive(members_.ranks[member], tag_.second, TagOf(tag_, 1),
                                          std::as_writable_bytes(theirs)));
    FOREBAY_ASSIGN(const Ticket send,
                   transport.BeginSend(members_.ranks[member], tag_.second, TagOf(tag_, 1),
                                       std::as_bytes(own)));
    under_way_.push_back(receive);
    under_way_.push_back(send);
  }
  return {};
}

template <typename T>
Result<std::optional<Ticket>> AllReduce<T>::Advance(Transport& transport) {
  // No sum may leave before all addends have come, so the second round begins when the first is
  // done.
  if (!summed_) {
    FOREBAY_ASSIGN(const std::optional<Ticket> undone, sums_.Advance(transport));
    if (undone) return undone;
    summed_ = true;
    FOREBAY_TRY(BeginGather(transport));
  }
  return FirstUndone(under_way_, transport);
}

template class ReduceScatter<float>;
template class ReduceScatter<double>;
template class AllReduce<float>;
template class AllReduce<double>;

AllGather::AllGather(Members members, const CollectiveTag& tag, std::span<const std::byte> own,
                     std::span<std::byte> all)
    : members_(std::move(members)), tag_(tag), own_(own), all_(all) {
  FOREBAY_CHECK(all_.size() == own_.size() * members_.count());
}

// One round: everything that a member sends is known at the beginning.
Status AllGather::Begin(Transport& transport) {
  for (std::uint32_t member = 0; member < members_.count(); ++member) {
    const std::span<std::byte> place = all_.subspan(own_.size() * member, own_.size());
    if (member == members_.self) {
      std::ranges::copy(own_, place.begin());
      continue;
    }
    FOREBAY_ASSIGN(const Ticket receive, transport.BeginReceive(members_.ranks[member], tag_.lane,
                                                                TagOf(tag_, 0), place));
    FOREBAY_ASSIGN(const Ticket send, transport.BeginSend(members_.ranks[member], tag_.lane,
                                                          TagOf(tag_, 0), own_));
    under_way_.push_back(receive);
    under_way_.push_back(send);
  }
  return {};
}

Result<std::optional<Ticket>> AllGather::Advance(Transport& transport) {
  return FirstUndone(under_way_, transport);
}

Broadcast::Broadcast(Members members, const CollectiveTag& tag, std::span<std::byte> bytes,
                     std::uint32_t root)
    : members_(std::move(members)), tag_(tag), bytes_(bytes), root_(root) {
  FOREBAY_CHECK(root_ < members_.count());
}

// A member's number counted from the root, so that the root is place 0 of the binomial tree.
std::uint32_t Broadcast::place() const {
  return (members_.self + members_.count() - root_) % members_.count();
}

std::uint32_t Broadcast::RankAt(std::uint32_t place) const {
  return members_.ranks[(place + root_) % members_.count()];
}

// Place p receives from p without its highest bit, and sends to p + 2^k for every higher bit k.
Status Broadcast::Begin(Transport& transport) {
  if (place() == 0) {
    arrived_ = true;
    return BeginSends(transport);
  }
  FOREBAY_ASSIGN(const Ticket receive,
                 transport.BeginReceive(RankAt(place() - std::bit_floor(place())), tag_.lane,
                                        TagOf(tag_, 0), bytes_));
  under_way_.push_back(receive);
  return {};
}

// To all places below this one in the binomial tree.
Status Broadcast::BeginSends(Transport& transport) {
  // The first bit above the highest one of our place.
  const std::uint64_t above = place() == 0 ? 1 : std::uint64_t{std::bit_floor(place())} * 2;
  for (std::uint64_t bit = above; place() + bit < members_.count(); bit *= 2) {
    FOREBAY_ASSIGN(const Ticket send,
                   transport.BeginSend(RankAt(static_cast<std::uint32_t>(place() + bit)),
                                       tag_.lane, TagOf(tag_, 0), bytes_));
    under_way_.push_back(send);
  }
  return {};
}

Result<std::optional<Ticket>> Broadcast::Advance(Transport& transport) {
  FOREBAY_ASSIGN(std::optional<Ticket> undone, FirstUndone(under_way_, transport));
  if (undone || arrived_) return undone;
  arrived_ = true;
  FOREBAY_TRY(BeginSends(transport));
  return FirstUndone(under_way_, transport);
}

Status ReduceInBuckets(Transport& transport, const Members& members, std::span<float> values,
                       std::uint64_t bucket_bytes, std::uint64_t step, std::uint64_t timeout_ns) {
  const std::size_t floats = std::max<std::size_t>(1, bucket_bytes / sizeof(float));
  CollectiveQueue queue;
  std::uint32_t bucket = 0;
  for (std::size_t at = 0; at < values.size(); at += floats, ++bucket) {
    const std::span<float> part = values.subspan(at, std::min(floats, values.size() - at));
    FOREBAY_TRY(queue.Begin(bucket,
                            std::make_unique<AllReduce<float>>(
                                members, CollectiveTag{.step = step, .edge = bucket}, part),
                            transport));
  }
  while (true) {
    FOREBAY_ASSIGN(const std::vector<Ticket> waited, queue.Advance(transport));
    if (waited.empty()) return {};
    FOREBAY_TRY(transport.AwaitAny(waited, timeout_ns));
  }
}

}  // namespace forebay::train
