// Ranks are threads of one process, used by tests and by runs of a single rank. A send and a
// receive are postings that meet in a mailbox for their sender, receiver and lane. The thread that
// comes second copies the bytes, so a transfer never needs a thread of its own. One mutex guards
// all mailboxes; copying happens outside of it.
#include "trainer/comm/transport/local_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "proto/contract/check.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::train {
namespace {

// One end of a message. The transport that posted it owns its memory until it is done.
struct Posting {
  std::uint32_t owner = 0;
  std::uint32_t peer = 0;
  MessageTag tag;
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::size_t bytes = 0;
  bool done = false;
  std::optional<Error> error = {};
};
using PostingRef = std::shared_ptr<Posting>;

// What waits on one lane from one rank to another. Sends wait while there is no receive, receives
// while there is no send, so one of the two queues is empty.
struct Mailbox {
  std::deque<PostingRef> sends;
  std::deque<PostingRef> receives;
};

class LocalGroup {
 public:
  explicit LocalGroup(std::uint32_t size)
      : mailboxes_(std::size_t{size} * size * kLaneCount), gone_(size), size_(size) {}

  std::uint32_t size() const { return size_; }

  void Post(const PostingRef& posting, Lane lane, bool sends) FOREBAY_EXCLUDES(mutex_) {
    const std::uint32_t from = sends ? posting->owner : posting->peer;
    const std::uint32_t to = sends ? posting->peer : posting->owner;
    PostingRef other;
    {
      const MutexLock lock(mutex_);
      // The posting is not put into a mailbox: its owner finds the error when it tests the ticket,
      // as it would over MPI.
      if (gone_[posting->peer]) {
        posting->error = Gone(posting->peer);
        return;
      }
      Mailbox& box = mailboxes_[(std::size_t{from} * size_ + to) * kLaneCount +
                                static_cast<std::size_t>(lane)];
      std::deque<PostingRef>& waiting = sends ? box.receives : box.sends;
      if (waiting.empty()) {
        (sends ? box.sends : box.receives).push_back(posting);
        return;
      }
      other = std::move(waiting.front());
      waiting.pop_front();
      // The copy is made without the mutex, and the memory of both postings has to stay meanwhile.
      // From here to Complete neither end can be withdrawn, because its owner waits in Leave until
      // copying_ is 0.
      ++copying_;
    }
    Complete(sends ? posting : other, sends ? other : posting);
  }

  // After it has returned true, the owner may read the posting without the mutex, because nobody
  // changes a posting that is finished.
  bool Finished(const Posting& posting) FOREBAY_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return posting.done || posting.error.has_value();
  }

  // False where the time is over.
  bool AwaitAny(const std::vector<PostingRef>& postings, std::uint64_t timeout_ns)
      FOREBAY_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return changed_.WaitFor(mutex_, std::chrono::nanoseconds(timeout_ns), [&] {
      return std::ranges::any_of(postings, [](const PostingRef& posting) {
        return posting->done || posting->error.has_value();
      });
    });
  }

  // The rank's memory may go: what it still has posted is withdrawn.
  void Leave(std::uint32_t rank) FOREBAY_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (copying_ != 0) changed_.Wait(mutex_);
    gone_[rank] = true;
    for (Mailbox& box : mailboxes_) {
      for (auto* queue : {&box.sends, &box.receives}) {
        std::erase_if(*queue, [&](const PostingRef& posting) {
          if (posting->owner != rank && posting->peer != rank) return false;
          posting->error = Gone(posting->owner == rank ? posting->peer : rank);
          return true;
        });
      }
    }
    changed_.NotifyAll();
  }

 private:
  // What a rank gets whose peer has left the group.
  static Error Gone(std::uint32_t rank) {
    return Error(ErrorCode::kUnavailable, fmt::format("rank {} has gone", rank));
  }

  // Runs on the thread of whichever rank posted second. Tags and memory of a posting do not change
  // after Post, so they are read without the mutex.
  void Complete(const PostingRef& send, const PostingRef& receive) FOREBAY_EXCLUDES(mutex_) {
    std::optional<Error> error;
    // The sender counts as done in any case: its memory is free. Only the receiver learns of the
    // mismatch, as over MPI.
    if (send->tag != receive->tag || send->bytes != receive->bytes) {
      error = Error(ErrorCode::kDataLoss,
                    fmt::format("rank {} sent {} bytes of {}; expected were {} bytes of {}",
                                send->owner, send->bytes, ToString(send->tag), receive->bytes,
                                ToString(receive->tag)));
    } else if (send->bytes > 0) {
      std::memcpy(receive->target, send->source, send->bytes);
    }
    const MutexLock lock(mutex_);
    send->done = true;
    receive->done = !error.has_value();
    receive->error = std::move(error);
    --copying_;
    // All ranks share one condition: both owners, and a rank that waits in Leave, may be among
    // those that wait.
    changed_.NotifyAll();
  }

  Mutex mutex_;  // also guards `done` and `error` of every posting
  CondVar changed_;
  // By sender, receiver and lane.
  std::vector<Mailbox> mailboxes_ FOREBAY_GUARDED_BY(mutex_);
  std::vector<bool> gone_ FOREBAY_GUARDED_BY(mutex_);
  const std::uint32_t size_;
  int copying_ FOREBAY_GUARDED_BY(mutex_) = 0;
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<LocalGroup> group, std::uint32_t rank)
      : group_(std::move(group)), rank_(rank) {}
  // Memory of transfers that are still under way may be freed after this, so they are withdrawn
  // first.
  ~LocalTransport() override { group_->Leave(rank_); }
  LocalTransport(const LocalTransport&) = delete;
  LocalTransport& operator=(const LocalTransport&) = delete;

  std::uint32_t rank() const override { return rank_; }
  std::uint32_t size() const override { return group_->size(); }
  std::uint32_t local_size() const override { return group_->size(); }
  std::uint32_t local_rank() const override { return rank_; }

  Result<Ticket> BeginSend(std::uint32_t peer, Lane lane, const MessageTag& tag,
                           std::span<const std::byte> bytes) override {
    auto posting = std::make_shared<Posting>();
    posting->source = bytes.data();
    posting->bytes = bytes.size();
    return Begin(std::move(posting), peer, lane, tag, true);
  }

  Result<Ticket> BeginReceive(std::uint32_t peer, Lane lane, const MessageTag& tag,
                              std::span<std::byte> bytes) override {
    auto posting = std::make_shared<Posting>();
    posting->target = bytes.data();
    posting->bytes = bytes.size();
    return Begin(std::move(posting), peer, lane, tag, false);
  }

  Result<bool> Test(Ticket ticket) override {
    FOREBAY_ASSIGN(const PostingRef posting, Find(ticket));
    if (!group_->Finished(*posting)) return false;
    FOREBAY_TRY(Take(ticket, *posting));
    return true;
  }

  Status AwaitAny(std::span<const Ticket> tickets, std::uint64_t timeout_ns) override {
    std::vector<PostingRef> postings;
    for (const Ticket ticket : tickets) {
      FOREBAY_ASSIGN(PostingRef posting, Find(ticket));
      postings.push_back(std::move(posting));
    }
    // A wait for nothing would never end.
    FOREBAY_CHECK(!postings.empty());
    if (group_->AwaitAny(postings, timeout_ns)) return {};
    return Overdue(rank_, postings.front()->peer, postings.front()->tag, timeout_ns);
  }

  void Abort(int /*exit_code*/) override { group_->Leave(rank_); }

 private:
  Result<Ticket> Begin(PostingRef posting, std::uint32_t peer, Lane lane, const MessageTag& tag,
                       bool sends) {
    if (peer >= group_->size() || peer == rank_) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("rank {} of {} exchanges messages with rank {}", rank_,
                               group_->size(), peer));
    }
    posting->owner = rank_;
    posting->peer = peer;
    posting->tag = tag;
    // A message for oneself would wait for ever: one thread makes both calls.
    group_->Post(posting, lane, sends);
    const Ticket ticket = next_ticket_++;
    postings_.emplace(ticket, std::move(posting));
    return ticket;
  }

  Result<PostingRef> Find(Ticket ticket) const {
    const auto found = postings_.find(ticket);
    if (found != postings_.end()) return found->second;
    return Error(ErrorCode::kInvalidArgument, fmt::format("no transfer {}", ticket));
  }

  Status Take(Ticket ticket, const Posting& posting) {
    Status result;
    if (posting.error) result = *posting.error;
    postings_.erase(ticket);
    return result;
  }

  std::shared_ptr<LocalGroup> group_;
  std::uint32_t rank_;
  Ticket next_ticket_ = 1;
  std::map<Ticket, PostingRef> postings_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> MakeLocalTransports(std::uint32_t size) {
  const auto group = std::make_shared<LocalGroup>(size);
  std::vector<std::unique_ptr<Transport>> ends;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    ends.push_back(std::make_unique<LocalTransport>(group, rank));
  }
  return ends;
}

}  // namespace forebay::train
