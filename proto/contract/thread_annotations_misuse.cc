// Code that clang's thread-safety analysis must refuse. Only the ctests
// `thread_annotations_misuse_N` compile it, with FOREBAY_MISUSE = N: they expect the message that
// belongs to that misuse. With 0 the file must compile.
#include "proto/contract/thread_annotations.h"

#ifndef FOREBAY_MISUSE
#define FOREBAY_MISUSE 0
#endif

namespace forebay {

class Counter {
 public:
  void Add() FOREBAY_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    AddLocked();
#if FOREBAY_MISUSE == 1
    Add();  // locks the mutex twice
#endif
  }

  int Read() FOREBAY_EXCLUDES(mutex_) {
#if FOREBAY_MISUSE == 2
    return count_;  // reads what the mutex guards
#else
    UniqueLock lock(mutex_);
    const int count = count_;
    lock.Unlock();
#if FOREBAY_MISUSE == 3
    AddLocked();  // calls what needs the mutex after it was unlocked
#endif
    return count;
#endif
  }

  void AwaitOne() FOREBAY_EXCLUDES(mutex_) {
#if FOREBAY_MISUSE == 4
    changed_.Wait(mutex_);  // waits without the mutex
#else
    const MutexLock lock(mutex_);
    while (count_ == 0) changed_.Wait(mutex_);
    changed_.WaitFor(mutex_, std::chrono::seconds(1),
                     [this]() FOREBAY_REQUIRES(mutex_) { return count_ > 1; });
#endif
  }

  void Swap() FOREBAY_EXCLUDES(mutex_, last_) {
#if FOREBAY_MISUSE == 5
    const MutexLock last(last_);
    const MutexLock lock(mutex_);  // against the order
#else
    const MutexLock lock(mutex_);
    const MutexLock last(last_);
#endif
  }

 private:
  void AddLocked() FOREBAY_REQUIRES(mutex_) {
    ++count_;
    changed_.NotifyAll();
  }

  Mutex mutex_ FOREBAY_ACQUIRED_BEFORE(last_);
  Mutex last_;
  CondVar changed_;
  int count_ FOREBAY_GUARDED_BY(mutex_) = 0;
};

int UseCounter() {
  Counter counter;
  counter.Add();
  counter.AwaitOne();
  counter.Swap();
  return counter.Read();
}

}  // namespace forebay
