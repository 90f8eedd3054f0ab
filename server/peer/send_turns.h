// SendTurns: the order in which this node sends answers to another node. If all answers were sent
// at the same time, they would share the link, and the batch that is needed first would be complete
// only when all are. So a few megabytes at a time are sent, first those that were asked for first:
// a node asks in the order in which its readers need the batches.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/contract/thread_annotations.h"

namespace forebay::peer {

// Thread-safe.
class SendTurns {
 public:
  // Another answer to a node is begun as long as those that are being sent have fewer than
  // `bytes_at_once` bytes left, 1 or more.
  explicit SendTurns(std::uint64_t bytes_at_once) : bytes_at_once_(bytes_at_once) {}

  // The place of one answer in the order.
  struct Turn {
    std::string connection;  // to the node that asked
    std::uint64_t number = 0;
  };
  // To be called when the request comes. Each turn must be ended.
  Turn Take(std::string connection);
  // The answer, of `bytes`, is there, and `begin` starts to send it. Calls `begin` when it is the
  // answer's turn: perhaps within this call, perhaps never, if the turn is ended before. An answer
  // that is not there yet holds up no other one. At most once for each turn.
  void Await(const Turn& turn, std::uint64_t bytes, std::function<void()> begin);
  // So many bytes of the answer were sent. Begins others.
  void Sent(const Turn& turn, std::uint64_t bytes);
  // The answer was sent, or is not wanted any more. Begins others. Once for each turn.
  void End(const Turn& turn);

 private:
  struct Answer {
    enum class State : std::uint8_t { kNotThere, kWaiting, kSending };
    State state = State::kNotThere;
    std::uint64_t bytes = 0;  // that are left
    std::function<void()> begin;  // while it waits
  };
  // The answers to one node whose turns have not ended.
  struct Answers {
    std::map<std::uint64_t, Answer> by_number;
    std::uint64_t sending_bytes = 0;  // of those that are being sent
  };
  struct Found {
    Answers* answers = nullptr;
    Answer* answer = nullptr;
  };
  Found FindLocked(const Turn& turn) FOREBAY_REQUIRES(mutex_);
  using Begins = std::vector<std::function<void()>>;
  Begins TakeNextLocked(Answers& answers) FOREBAY_REQUIRES(mutex_);

  const std::uint64_t bytes_at_once_;
  Mutex mutex_;
  std::uint64_t taken_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Answers> nodes_ FOREBAY_GUARDED_BY(mutex_);
};

// A turn that several hold: gRPC until it is done with the call, and a payload carrier until it is
// done with nearly all that it sends. It ends when the last one releases it. Thread-safe.
class HeldTurn {
 public:
  // Held once, by the call.
  HeldTurn(std::shared_ptr<SendTurns> turns, SendTurns::Turn turn)
      : turns_(std::move(turns)), turn_(std::move(turn)) {}
  void Await(std::uint64_t bytes, std::function<void()> begin) {
    turns_->Await(turn_, bytes, std::move(begin));
  }
  void Sent(std::uint64_t bytes) { turns_->Sent(turn_, bytes); }
  // False: the turn has ended, because the call was cancelled, and the caller holds nothing.
  bool TryHold() {
    int holds = holds_.load();
    while (holds > 0) {
      if (holds_.compare_exchange_weak(holds, holds + 1)) return true;
    }
    return false;
  }
  void Release() {
    if (--holds_ == 0) turns_->End(turn_);
  }

 private:
  const std::shared_ptr<SendTurns> turns_;
  const SendTurns::Turn turn_;
  std::atomic<int> holds_ = 1;
};

}  // namespace forebay::peer
