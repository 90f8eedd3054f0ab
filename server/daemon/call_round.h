// CallRound: makes a call to each of many nodes, of which a bounded number is under way at a time.
// If all calls of a large job began at once, a daemon would open thousands of connections at once:
// more than it may have files, and so slowly that the calls miss their deadlines meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace forebay::daemon {

// It has no thread of its own: the first calls are made by the thread that begins the round, and
// each further one by the thread that ends another. A node that does not answer takes one of the
// places until the deadline of its call. So s silent nodes lengthen a round by s / at_a_time
// deadlines together, and the other calls go on meanwhile.
class CallRound {
 public:
  // To be called once when a call has ended, perhaps within the call, by any thread. It may be
  // called when the round has been destroyed, and has no effect then.
  using Ended = std::function<void()>;
  using Call = std::function<void(std::size_t index, const Ended& ended)>;

  // `at_a_time`: at least 1.
  explicit CallRound(std::size_t at_a_time) : at_a_time_(at_a_time) {}
  CallRound(const CallRound&) = delete;
  CallRound& operator=(const CallRound&) = delete;
  ~CallRound() { Stop(); }

  // Has `call` called with 0 to count - 1, in this order. The round before must have ended. No
  // effect after Stop.
  void Begin(std::size_t count, Call call);
  // Whether a call has not ended, or is still to be made.
  bool is_under_way() const;
  // Makes no further call. When it returns, `call` is not being called, and will not be; calls that
  // have been made may not have ended. Not to be called within `call`.
  void Stop();

 private:
  struct Round;
  static void MakeCalls(const std::shared_ptr<Round>& round);

  const std::size_t at_a_time_;
  bool is_stopped_ = false;
  std::shared_ptr<Round> round_;  // null: none has begun. Shared with the calls of it
};

}  // namespace forebay::daemon
