// GfsCalls: which calls to the GFS are under way, and which of them are not answered. A file
// system whose server is silent blocks its callers for as long as it likes; nobody can end such a
// call, but others can be told of it, and can keep away from its object.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "server/io/clock.h"

namespace forebay::stage {

// Thread-safe; `clock` is borrowed. Costs each call two short locks that few threads share.
class GfsCalls {
 public:
  GfsCalls(std::int64_t hung_after_ms, io::Clock& clock)
      : hung_after_ns_(hung_after_ms * 1'000'000), clock_(clock) {}

  // The object that a call is about. What it names must outlive the call.
  struct Object {
    std::string_view root;  // absolute
    std::string_view path;  // beneath it; empty: the root itself
    std::string Name() const;
  };

  // One call and its repetitions, on the thread that waits for them, from construction to
  // destruction.
  class Call {
   public:
    Call(GfsCalls& calls, std::string_view what, const Object& object);
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call();
    // Between a failure, which is an answer, and the next try.
    void Pause();
    void TryAgain();

   private:
    friend class GfsCalls;
    GfsCalls& calls_;
    const std::string_view what_;
    const Object object_;
    const std::thread::id thread_;
    const std::int64_t begun_ns_;
    std::int64_t tried_ns_;   // when the last try began
    bool is_paused_ = false;
    bool is_late_ = false;    // begun long ago
    bool is_hung_ = false;    // tried long ago, and not answered
    Call* previous_ = nullptr;
    Call* next_ = nullptr;
  };

  // To be called about once a second: finds the calls that have become late, or hung, and writes
  // one line for each object of the latter. What is asked below is as of the last look.
  void Look();

  struct Figures {
    std::uint64_t hung = 0;        // calls that have not been answered for too long
    std::uint64_t hung_total = 0;  // since the start
    std::string oldest;            // what and of which object the oldest of them is; or empty
    std::int64_t oldest_ms = 0;    // how long it has not been answered
  };
  Figures figures() const;
  // Whether a call about the object, repeated or not, goes on for longer than the limit: whoever
  // can read another one should.
  bool IsLate(const Object& object) const;
  bool AnyLate() const { return late_count_.load(std::memory_order_relaxed) > 0; }
  // The threads that wait in such calls.
  std::vector<std::thread::id> LateThreads() const;
  // The calls under way, late or not, for who ends without them: "read of '/gfs/a' for 3.2 s, and 2
  // other calls"; empty where there are none.
  std::string UnderWay() const;
  std::int64_t hung_after_ns() const { return hung_after_ns_; }

 private:
  // Calls of some threads, as a list.
  struct alignas(64) Shard {
    mutable std::mutex mutex;
    Call* first = nullptr;
  };
  // Calls `visit` with each call under way.
  template <typename Visit>
  void ForEach(Visit visit) const;
  static constexpr std::size_t kShards = 16;

  Shard& ShardOf(const Call& call);
  // All with the lock of the call's shard.
  void LookAt(Call& call, std::int64_t now_ns);
  void Answered(Call& call);  // one that is hung
  void End(Call& call);       // one that is late

  const std::int64_t hung_after_ns_;
  io::Clock& clock_;
  std::array<Shard, kShards> shards_;
  std::atomic<std::uint64_t> late_count_ = 0;
  mutable std::mutex mutex_;  // taken after a shard's
  std::unordered_map<std::string, std::uint64_t> late_;  // calls, by object
  std::unordered_map<std::string, std::uint64_t> hung_;
  std::uint64_t hung_total_ = 0;
};

}  // namespace forebay::stage
