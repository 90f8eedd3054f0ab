// The annotated types behave as the standard types that they wrap. thread_annotations_misuse.cc
// shows what the analysis refuses.
#include "proto/contract/thread_annotations.h"

#include <chrono>
#include <future>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <thread>

#include <gtest/gtest.h>

namespace forebay {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

// Whether another thread could lock `mutex` now.
bool IsFree(Mutex& mutex) {
  return std::async(std::launch::async, [&mutex] {
           if (!mutex.TryLock()) return false;
           mutex.Unlock();
           return true;
         }).get();
}

TEST(ThreadAnnotationsTest, AMutexLockHoldsTheMutexToTheEndOfTheBlock) {
  Mutex mutex;
  {
    const MutexLock lock(mutex);
    EXPECT_FALSE(IsFree(mutex));
  }
  EXPECT_TRUE(IsFree(mutex));
}

TEST(ThreadAnnotationsTest, AMutexLockAdoptsWhatTryLockHasLocked) {
  Mutex mutex;
  if (mutex.TryLock()) {
    const MutexLock lock(mutex, std::adopt_lock);
    EXPECT_FALSE(IsFree(mutex));
  } else {
    ADD_FAILURE() << "nobody holds the mutex";
  }
  EXPECT_TRUE(IsFree(mutex));
}

TEST(ThreadAnnotationsTest, AUniqueLockUnlocksOnce) {
  Mutex mutex;
  {
    UniqueLock lock(mutex);
    EXPECT_FALSE(IsFree(mutex));
    lock.Unlock();
    EXPECT_TRUE(IsFree(mutex));
    lock.Lock();
    EXPECT_FALSE(IsFree(mutex));
  }
  EXPECT_TRUE(IsFree(mutex));
  {
    UniqueLock lock(mutex);
    lock.Unlock();
  }
  EXPECT_TRUE(IsFree(mutex));
}

TEST(ThreadAnnotationsTest, AWaitEndsWhenItIsNotifiedAndHoldsTheMutexAgain) {
  Mutex mutex;
  CondVar changed;
  bool done = false;
  std::jthread other;
  {
    const MutexLock lock(mutex);
    // The other thread gets the mutex only once the wait has unlocked it.
    other = std::jthread([&] {
      const MutexLock lock_of_other(mutex);
      done = true;
      changed.NotifyOne();
    });
    while (!done) changed.Wait(mutex);
    EXPECT_FALSE(IsFree(mutex));
  }
  EXPECT_TRUE(IsFree(mutex));
}

TEST(ThreadAnnotationsTest, ATimedWaitEndsWithTheMutexHeld) {
  Mutex mutex;
  CondVar never;
  const MutexLock lock(mutex);
  EXPECT_EQ(never.WaitFor(mutex, milliseconds(1)), std::cv_status::timeout);
  EXPECT_EQ(never.WaitUntil(mutex, steady_clock::now()), std::cv_status::timeout);
  EXPECT_FALSE(never.WaitFor(mutex, milliseconds(1), [] { return false; }));
  EXPECT_FALSE(never.WaitUntil(mutex, steady_clock::now(), [] { return false; }));
  EXPECT_TRUE(never.WaitFor(mutex, seconds(0), [] { return true; }));
  EXPECT_TRUE(never.WaitUntil(mutex, steady_clock::now(), [] { return true; }));
  EXPECT_FALSE(IsFree(mutex));
}

TEST(ThreadAnnotationsTest, AnExceptionOfAPredicateLeavesTheMutexToItsLock) {
  Mutex mutex;
  CondVar never;
  {
    const MutexLock lock(mutex);
    const auto fails = []() -> bool { throw std::runtime_error("no answer"); };
    EXPECT_THROW(never.WaitFor(mutex, seconds(1), fails), std::runtime_error);
    EXPECT_FALSE(IsFree(mutex));
  }
  EXPECT_TRUE(IsFree(mutex));
}

TEST(ThreadAnnotationsTest, AStopEndsAWait) {
  Mutex mutex;
  StoppableCondVar changed;
  std::stop_source source;
  std::jthread other;
  {
    const MutexLock lock(mutex);
    other = std::jthread([&] {
      const MutexLock lock_of_other(mutex);
      source.request_stop();
    });
    EXPECT_FALSE(changed.Wait(mutex, source.get_token(), [] { return false; }));
    EXPECT_FALSE(IsFree(mutex));
    EXPECT_FALSE(changed.WaitFor(mutex, source.get_token(), seconds(60), [] { return false; }));
  }
  EXPECT_TRUE(IsFree(mutex));
}

TEST(ThreadAnnotationsTest, ANotificationEndsAStoppableWait) {
  Mutex mutex;
  StoppableCondVar changed;
  const std::stop_source source;
  bool done = false;
  std::jthread other;
  const MutexLock lock(mutex);
  other = std::jthread([&] {
    const MutexLock lock_of_other(mutex);
    done = true;
    changed.NotifyAll();
  });
  EXPECT_TRUE(changed.Wait(mutex, source.get_token(), [&] { return done; }));
  EXPECT_TRUE(changed.WaitFor(mutex, source.get_token(), seconds(0), [&] { return done; }));
}

TEST(ThreadAnnotationsTest, AWrapperIsNoLargerThanWhatItWraps) {
  EXPECT_EQ(sizeof(Mutex), sizeof(std::mutex));
  EXPECT_EQ(sizeof(CondVar), sizeof(std::condition_variable));
  EXPECT_EQ(sizeof(MutexLock), sizeof(std::lock_guard<std::mutex>));
  EXPECT_EQ(sizeof(UniqueLock), sizeof(std::unique_lock<std::mutex>));
}

}  // namespace
}  // namespace forebay
