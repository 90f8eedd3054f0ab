// GfsCalls: records which calls to the GFS are under way, and which of them are not answered. While
// a file server does not answer, its callers are blocked in the kernel, and such a call cannot be
// cancelled. But other threads can ask this object, and avoid the file meanwhile.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"

namespace forebay::stage {

inline constexpr std::int64_t kNsPerMs = 1'000'000;

// What a call that reads is called (GfsCalls::Call).
inline constexpr std::string_view kReadCall = "read";

// Thread-safe; `clock` is borrowed. Each call takes two short locks, with little contention; a
// read takes another one, which all threads share.
class GfsCalls {
 public:
  GfsCalls(std::int64_t hung_after_ms, io::Clock& clock)
      : hung_after_ns_(hung_after_ms * kNsPerMs), clock_(clock) {}

  // The object that a call is about. Its strings must outlive the call.
  struct Object {
    std::string_view root;  // absolute
    std::string_view path;  // beneath it; empty: the root itself
    std::string Name() const;
  };

  // One call including its retries, on the thread that waits for it. It is under way from
  // construction to destruction.
  class Call {
   public:
    Call(GfsCalls& calls, std::string_view what, const Object& object);
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call();
    // After a failure, which is an answer: the call waits for its next try.
    void Pause();
    // The next try begins.
    void TryAgain();
    // The call waits for its turn in this daemon, until GoOn. Meanwhile it does not become late or
    // hung, and this time does not count.
    void Hold();
    void GoOn();

   private:
    friend class GfsCalls;
    GfsCalls& calls_;
    const std::string_view what_;
    const Object object_;
    const std::thread::id thread_;
    std::int64_t begun_ns_;   // later by the time in which it was held
    std::int64_t tried_ns_;   // begin of the last try
    std::int64_t held_ns_ = 0;  // since when it is held
    bool is_paused_ = false;
    bool is_held_ = false;
    bool is_late_ = false;    // begun longer ago than late_after_ns
    bool is_hung_ = false;    // last try begun longer ago than hung_after_ns, and not answered
    Call* previous_ = nullptr;
    Call* next_ = nullptr;
  };

  // Call about once a second: finds calls that have become late or hung, and logs one line for each
  // object with a hung call. The functions below know of a late or hung call only after this.
  void Look();

  struct Figures {
    std::uint64_t hung = 0;        // calls that are hung now
    std::uint64_t hung_total = 0;  // calls that were or are hung, since the start
    std::string oldest;            // the oldest hung call, as "read of '/gfs/a'"; empty: none
    std::int64_t oldest_ms = 0;    // how long that one has not been answered
  };
  Figures figures() const;

  struct Pace {
    // Of the reads that have ended in the last 30 to 60 s in which any has; 0: none has ended yet.
    std::int64_t longest_ns = 0;
    std::int64_t oldest_ns = 0;  // how long the oldest call is under way, with its retries
    // How long ago a read has ended that took less than a second.
    std::int64_t since_quick_ns = std::numeric_limits<std::int64_t>::max();
  };
  // How the GFS fares on this node now. Other calls than reads are shorter.
  Pace pace() const;
  // Whether a call about the object, including its retries, has taken longer than the limit. If so,
  // the caller should work on another object first.
  bool IsLate(const Object& object) const;
  bool AnyLate() const { return late_count_.load(std::memory_order_relaxed) > 0; }
  // The threads that wait in late calls.
  std::vector<std::thread::id> LateThreads() const;
  // All calls under way, for the log of a daemon that exits without waiting for them: "read of
  // '/gfs/a' for 3.2 s, and 2 other calls"; empty if there are none.
  std::string UnderWay() const;
  std::int64_t hung_after_ns() const { return hung_after_ns_; }
  // Calls are late after this time from now on, instead of hung_after_ns(), or with it if that is
  // shorter. Thread-safe.
  void SetLateAfter(std::int64_t ns) { late_after_ns_ = std::min(ns, hung_after_ns_); }
  std::int64_t late_after_ns() const { return late_after_ns_; }

 private:
  // Calls of some threads, as a list.
  struct alignas(64) Shard {
    mutable Mutex mutex;
    Call* first FOREBAY_GUARDED_BY(mutex) = nullptr;
  };
  // Calls `visit` with each call under way.
  template <typename Visit>
  void ForEach(Visit visit) const;
  static constexpr std::size_t kShards = 16;

  Shard& ShardOf(const Call& call);
  // The caller holds the lock of the call's shard.
  void LookAt(Call& call, std::int64_t now_ns);
  void Answered(Call& call);  // a hung call
  void End(Call& call);       // a late call
  void NoteRead(std::int64_t took_ns);
  void BeginWindowLocked(std::int64_t now_ns) const FOREBAY_REQUIRES(reads_mutex_);

  const std::int64_t hung_after_ns_;
  io::Clock& clock_;
  std::array<Shard, kShards> shards_;
  std::atomic<std::uint64_t> late_count_ = 0;
  std::atomic<std::int64_t> late_after_ns_ = hung_after_ns_;
  // The longest read of the present window of time, and of the one before.
  mutable Mutex reads_mutex_;
  mutable std::int64_t window_ns_ FOREBAY_GUARDED_BY(reads_mutex_) = 0;  // its begin
  mutable std::int64_t longest_ns_ FOREBAY_GUARDED_BY(reads_mutex_) = 0;
  mutable std::int64_t longest_before_ns_ FOREBAY_GUARDED_BY(reads_mutex_) = 0;
  std::optional<std::int64_t> quick_ns_ FOREBAY_GUARDED_BY(reads_mutex_);  // the last quick one
  mutable Mutex mutex_;  // locked after a shard's mutex
  // By object: the number of its calls.
  std::unordered_map<std::string, std::uint64_t> late_ FOREBAY_GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::uint64_t> hung_ FOREBAY_GUARDED_BY(mutex_);
  std::uint64_t hung_total_ FOREBAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace forebay::stage
