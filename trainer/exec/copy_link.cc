#include "trainer/exec/copy_link.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include "proto/contract/check.h"

namespace forebay::train {

CopyLink::CopyLink(double bytes_per_ns)
    : bytes_per_ns_(bytes_per_ns), thread_([this](const std::stop_token& stop) { Run(stop); }) {
  FOREBAY_CHECK(bytes_per_ns >= 0);
}

CopyLink::~CopyLink() {
  std::uint64_t last = 0;
  {
    const std::lock_guard lock(mutex_);
    last = begun_count_;
  }
  Wait(last);
}

std::uint64_t CopyLink::Begin(std::span<std::byte> to, std::span<const std::byte> from) {
  FOREBAY_CHECK(to.size() == from.size());
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({.to = to, .from = from});
    number = ++begun_count_;
  }
  begun_.notify_one();
  return number;
}

void CopyLink::Wait(std::uint64_t copy) {
  std::unique_lock lock(mutex_);
  FOREBAY_CHECK(copy <= begun_count_);
  done_.wait(lock, [&] { return done_count_ >= copy; });
}

bool CopyLink::Done(std::uint64_t copy) const {
  const std::lock_guard lock(mutex_);
  return done_count_ >= copy;
}

LinkFigures CopyLink::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

std::uint64_t CopyLink::Transfer(const Copy& copy) const {
  using std::chrono::nanoseconds;
  using std::chrono::steady_clock;
  const steady_clock::time_point began = steady_clock::now();
  std::memcpy(copy.to.data(), copy.from.data(), copy.to.size());
  if (bytes_per_ns_ > 0) {
    // The rest of the time that the emulated link would take.
    std::this_thread::sleep_until(
        began + nanoseconds(std::llround(static_cast<double>(copy.to.size()) / bytes_per_ns_)));
  }
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<nanoseconds>(steady_clock::now() - began).count());
}

void CopyLink::Run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (begun_.wait(lock, stop, [&] { return !waiting_.empty(); })) {
    const Copy copy = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    const std::uint64_t took_ns = Transfer(copy);
    lock.lock();
    ++done_count_;
    figures_.bytes += copy.to.size();
    figures_.busy_ns += took_ns;
    done_.notify_all();
  }
}

double MeasureLink() {
  constexpr std::size_t kBytes = 16U << 20;
  constexpr int kRuns = 7;
  const std::vector<std::byte> from(kBytes, std::byte{1});
  std::vector<std::byte> to(kBytes);  // written once, so that its pages are there
  CopyLink link;
  std::vector<std::uint64_t> times_ns;
  for (int run = 0; run < kRuns; ++run) {
    const std::uint64_t before_ns = link.figures().busy_ns;
    link.Wait(link.Begin(to, from));
    times_ns.push_back(link.figures().busy_ns - before_ns);
  }
  std::ranges::sort(times_ns);
  return static_cast<double>(kBytes) /
         static_cast<double>(std::max<std::uint64_t>(times_ns[kRuns / 2], 1));
}

}  // namespace forebay::train
