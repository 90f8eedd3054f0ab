// PeerCall: one call to another node, as the connection to that node (PeerLink) sees it: it waits
// for its turn, begins, and can be cancelled. It may be watched, so that it ends early if nothing
// comes (LinkWatch).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include <grpcpp/alarm.h>
#include <grpcpp/channel.h>

#include "proto/contract/result.h"

namespace forebay::peer {

// The error of a call that nobody wants any more.
inline Error Withdrawn() {
  return Error(ErrorCode::kCancelled, "nobody waits for the answer any more");
}

// Owned by the link from Start until Begin or Fail was called, and by gRPC until the call has
// ended. The link calls exactly one of Begin and Fail, once, and holds no mutex meanwhile.
class PeerCall {
 public:
  enum class Watched : bool { kNo, kYes };
  // `bytes`: how much the answer takes of the bytes that may be under way (FlightBound).
  PeerCall(std::uint64_t bytes, std::int64_t deadline_ns, Watched watched = Watched::kNo)
      : bytes_(bytes), deadline_ns_(deadline_ns), is_watched_(watched == Watched::kYes) {}
  virtual ~PeerCall() = default;
  PeerCall(const PeerCall&) = delete;
  PeerCall& operator=(const PeerCall&) = delete;

  // Starts the call. When it has ended, it calls PeerLink::Ended.
  virtual void Begin(const std::shared_ptr<grpc::Channel>& channel) = 0;
  // The call cannot begin, and its caller gets `error`.
  virtual void Fail(const Error& error) = 0;
  // Ends a call that has begun as soon as possible. Any thread.
  virtual void Cancel() = 0;

  std::uint64_t bytes() const { return bytes_; }
  std::int64_t deadline_ns() const { return deadline_ns_; }  // by io::Clock

  // Of a call that has ended without an answer: whether the other node had said that it waits, and
  // this one has not given the call up. gRPC makes such a call only once (kSecondAttempt), because
  // something has come.
  bool was_interrupted() const { return was_excused_ && !has_progress_ && !is_given_up_; }
  // The error of a call that has ended with `error`. A node that still waits when the deadline
  // comes, and has said so, is not silent: kAborted, as if it had given up itself.
  Error Outcome(const Error& error) const {
    if (error.code() != ErrorCode::kDeadlineExceeded || !was_interrupted()) return error;
    return Error(ErrorCode::kAborted,
                 error.message() + " (the node waits for the GFS or for memory)");
  }

 protected:
  // To be called when the other node has said that it waits for the GFS or for memory, and when
  // this node does not read on for a while. Until NoteProgress, nothing is expected to come.
  void NoteWaits() {
    is_excused_ = true;
    was_excused_ = true;
  }
  // To be called when a part of the answer has come.
  void NoteProgress() {
    has_progress_ = true;
    is_excused_ = false;
    silent_ns_ = kNotLookedAt;
  }
  bool has_progress() const { return has_progress_; }

 private:
  friend class PeerLink;
  const std::uint64_t bytes_;
  const std::int64_t deadline_ns_;
  const bool is_watched_;
  std::atomic<bool> is_given_up_ = false;  // this node has ended it: the other one is late or dead
  std::atomic<bool> is_excused_ = false;
  std::atomic<bool> was_excused_ = false;  // so its time says nothing about the node
  std::atomic<bool> has_progress_ = false;
  // For how long nothing has come, as far as PeerLink::AddSilence has seen it.
  static constexpr std::int64_t kNotLookedAt = -1;
  std::atomic<std::int64_t> silent_ns_ = kNotLookedAt;
  std::int64_t added_ns_ = 0;  // when it is to begin at the earliest, by io::Clock
  bool waits_its_turn_ = false;  // PeerLink::Start, and not StartAtOnce, has begun it
  std::int64_t begun_ns_ = 0;    // when it has, by io::Clock
  std::shared_ptr<grpc::Channel> channel_;  // by which it begins
  bool is_withdrawn_ = false;    // under the link's mutex
  bool is_resting_ = false;      // likewise: it is not to begin yet (PeerLink::StartLater)
  grpc::Alarm alarm_;  // at the deadline, while the call waits for its turn
  std::optional<grpc::Alarm> rest_alarm_;  // at the end of its rest
};

}  // namespace forebay::peer
