// Mutex, locks and condition variables that clang's thread-safety analysis understands, and the
// macros that say which mutex guards what.
//
// libstdc++'s std::mutex has no annotations, so the analysis cannot see it. The types here wrap
// the standard ones at no cost. Every room uses them instead of std::mutex, and names the mutex of
// every guarded member:
//
//   class Queue {
//    public:
//     void Push(int value) FOREBAY_EXCLUDES(mutex_) {
//       const MutexLock lock(mutex_);
//       values_.push_back(value);
//       changed_.NotifyOne();
//     }
//     int Pop() FOREBAY_EXCLUDES(mutex_) {
//       const MutexLock lock(mutex_);
//       while (values_.empty()) changed_.Wait(mutex_);
//       return TakeFront();
//     }
//
//    private:
//     int TakeFront() FOREBAY_REQUIRES(mutex_);
//
//     Mutex mutex_;
//     CondVar changed_;
//     std::deque<int> values_ FOREBAY_GUARDED_BY(mutex_);
//   };
//
// The presets `clang`, `tidy` and `fuzz` refuse code that touches `values_` without the lock.
// Other compilers ignore the macros. clang does not check constructors and destructors. It checks
// a lambda as a function of its own, so a lambda that runs under a lock declares that after its
// parameter list: `[this]() FOREBAY_REQUIRES(mutex_) { return done_; }`.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#if defined(__clang__)
#define FOREBAY_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define FOREBAY_THREAD_ATTRIBUTE(x)
#endif

// On a member: it, or what it points to, is read and written only with the mutex held.
#define FOREBAY_GUARDED_BY(x) FOREBAY_THREAD_ATTRIBUTE(guarded_by(x))
#define FOREBAY_PT_GUARDED_BY(x) FOREBAY_THREAD_ATTRIBUTE(pt_guarded_by(x))
// On a mutex: the lock order. Checked for mutexes of one class, where both are named in it.
#define FOREBAY_ACQUIRED_BEFORE(...) FOREBAY_THREAD_ATTRIBUTE(acquired_before(__VA_ARGS__))
#define FOREBAY_ACQUIRED_AFTER(...) FOREBAY_THREAD_ATTRIBUTE(acquired_after(__VA_ARGS__))
// On a function: the caller holds the mutex, or must not hold it because the function takes it.
#define FOREBAY_REQUIRES(...) FOREBAY_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define FOREBAY_EXCLUDES(...) FOREBAY_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
// On a function that leaves the mutex locked, unlocked, or locked if it returns `success`.
#define FOREBAY_ACQUIRE(...) FOREBAY_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define FOREBAY_RELEASE(...) FOREBAY_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define FOREBAY_TRY_ACQUIRE(...) FOREBAY_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
// On a class: a mutex; an object that holds one while it lives.
#define FOREBAY_CAPABILITY(x) FOREBAY_THREAD_ATTRIBUTE(capability(x))
#define FOREBAY_SCOPED_CAPABILITY FOREBAY_THREAD_ATTRIBUTE(scoped_lockable)
// On a function that the analysis cannot follow. A comment beside it says why it is right.
#define FOREBAY_NO_THREAD_SAFETY_ANALYSIS FOREBAY_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace forebay {

// A std::mutex. Use MutexLock or UniqueLock rather than Lock() and Unlock().
class FOREBAY_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() FOREBAY_ACQUIRE() { mutex_.lock(); }
  void Unlock() FOREBAY_RELEASE() { mutex_.unlock(); }
  bool TryLock() FOREBAY_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  friend class CondVar;
  friend class StoppableCondVar;

  // Lends the held mutex to a wait of the standard library, and never unlocks it: a wait returns,
  // or throws what its predicate threw, with the mutex held.
  struct Lent {
    explicit Lent(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    ~Lent() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };

  std::mutex mutex_;
};

// Holds a mutex from here to the end of the block, as std::lock_guard does.
class FOREBAY_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) FOREBAY_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  // Adopts a mutex that TryLock() has locked.
  MutexLock(Mutex& mutex, std::adopt_lock_t) FOREBAY_REQUIRES(mutex) : mutex_(mutex) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  ~MutexLock() FOREBAY_RELEASE() { mutex_.Unlock(); }

 private:
  Mutex& mutex_;
};

// Like MutexLock, for functions that unlock the mutex before the end of the block, and may lock
// it again, as with std::unique_lock.
class FOREBAY_SCOPED_CAPABILITY UniqueLock {
 public:
  explicit UniqueLock(Mutex& mutex) FOREBAY_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  UniqueLock(const UniqueLock&) = delete;
  UniqueLock& operator=(const UniqueLock&) = delete;
  ~UniqueLock() FOREBAY_RELEASE() {
    if (owned_) mutex_.Unlock();
  }

  void Lock() FOREBAY_ACQUIRE() {
    mutex_.Lock();
    owned_ = true;
  }
  void Unlock() FOREBAY_RELEASE() {
    owned_ = false;
    mutex_.Unlock();
  }

 private:
  Mutex& mutex_;
  bool owned_ = true;
};

// A std::condition_variable. The waiting thread holds `mutex`, which is unlocked during the wait
// and held again when the wait returns.
class CondVar {
 public:
  // Waits for a notification, at most until `deadline` or for `timeout`. May return without one,
  // so the call stands in a loop that tests the condition.
  void Wait(Mutex& mutex) FOREBAY_REQUIRES(mutex) {
    Mutex::Lent lent(mutex);
    condition_.wait(lent.lock);
  }
  template <typename Clock, typename Duration>
  std::cv_status WaitUntil(Mutex& mutex, const std::chrono::time_point<Clock, Duration>& deadline)
      FOREBAY_REQUIRES(mutex) {
    Mutex::Lent lent(mutex);
    return condition_.wait_until(lent.lock, deadline);
  }
  template <typename Rep, typename Period>
  std::cv_status WaitFor(Mutex& mutex, const std::chrono::duration<Rep, Period>& timeout)
      FOREBAY_REQUIRES(mutex) {
    Mutex::Lent lent(mutex);
    return condition_.wait_for(lent.lock, timeout);
  }

  // Waits until `predicate` holds, at most until `deadline` or for `timeout`. Returns whether the
  // predicate holds.
  template <typename Clock, typename Duration, typename Predicate>
  bool WaitUntil(Mutex& mutex, const std::chrono::time_point<Clock, Duration>& deadline,
                 Predicate predicate) FOREBAY_REQUIRES(mutex) {
    Mutex::Lent lent(mutex);
    return condition_.wait_until(lent.lock, deadline, std::move(predicate));
  }
  template <typename Rep, typename Period, typename Predicate>
  bool WaitFor(Mutex& mutex, const std::chrono::duration<Rep, Period>& timeout,
               Predicate predicate) FOREBAY_REQUIRES(mutex) {
    Mutex::Lent lent(mutex);
    return condition_.wait_for(lent.lock, timeout, std::move(predicate));
  }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

// A std::condition_variable_any, whose waits also end when a stop is requested. It costs a mutex
// of its own: use CondVar where no stop token is at hand.
class StoppableCondVar {
 public:
  // Waits until `predicate` holds or `stop` is requested, at most for `timeout`. Returns whether
  // the predicate holds.
  template <typename Predicate>
  bool Wait(Mutex& mutex, std::stop_token stop, Predicate predicate) FOREBAY_REQUIRES(mutex) {
    Mutex::Lent lent(mutex);
    return condition_.wait(lent.lock, std::move(stop), std::move(predicate));
  }
  template <typename Rep, typename Period, typename Predicate>
  bool WaitFor(Mutex& mutex, std::stop_token stop,
               const std::chrono::duration<Rep, Period>& timeout, Predicate predicate)
      FOREBAY_REQUIRES(mutex) {
    Mutex::Lent lent(mutex);
    return condition_.wait_for(lent.lock, std::move(stop), timeout, std::move(predicate));
  }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable_any condition_;
};

}  // namespace forebay
