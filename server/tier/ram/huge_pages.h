// HugePages: sees to it that the blocks of an arena lie in pages of 2 MiB. Small rows at random
// places otherwise cost a TLB miss each, and every page of 4 KiB its own page fault. Pages that the
// site has reserved come first (SharedRegion). Elsewhere the kernel is asked for transparent huge
// pages, one run of 2 MiB after the other, when the arena gives out a block of it first. On most
// systems shared memory has no huge pages unless they are asked for with MADV_COLLAPSE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/shared_mapping.h"
#include "proto/contract/thread_annotations.h"
#include "server/tier/ram/shared_region.h"

namespace forebay::tier {

// In which pages memory lies that was given out so far. Reserved pages count as a whole region.
struct PageCounts {
  std::uint64_t reserved_bytes = 0;     // in huge pages that the site has reserved
  std::uint64_t transparent_bytes = 0;  // in huge pages that the kernel made when asked to
  std::uint64_t small_bytes = 0;        // in pages of 4 KiB
  int refusal_errno = 0;                // the last refusal of a transparent huge page; 0: none
};

// Thread-safe.
class HugePages {
 public:
  // After so many refusals without a success between them, the kernel is not asked again. Each may
  // cost milliseconds, in which the kernel looks for memory that it can move together.
  static constexpr int kRefusalsMax = 8;

  // Borrows `regions`.
  HugePages(std::span<const SharedRegion> regions, HugePageUse use);

  // Makes every run of 2 MiB that has a byte of the range a huge page, if this is the first call
  // for the run. Does not change bytes; any thread may use the memory meanwhile. Takes about 0.1 ms
  // per MiB, a tenth of what the page faults take that it saves; no time for runs that were asked
  // for before. If the kernel refuses, the pages are small.
  void Prepare(std::size_t region, std::uint64_t offset, std::uint64_t bytes);
  PageCounts counts() const;

 private:
  struct Runs {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };
  std::vector<Runs> TakeNew(std::size_t region, std::uint64_t offset, std::uint64_t bytes);
  std::uint64_t MakeHuge(std::span<std::byte> runs);
  bool MayAsk() const;
  void NoteSuccess();
  void NoteRefusal(int refusal_errno);

  const std::span<const SharedRegion> regions_;
  const HugePageUse use_;
  mutable Mutex mutex_;
  std::vector<std::vector<bool>> is_prepared_ FOREBAY_GUARDED_BY(mutex_);  // by region, by run
  PageCounts counts_ FOREBAY_GUARDED_BY(mutex_);
  int refusals_ FOREBAY_GUARDED_BY(mutex_) = 0;  // since the last success
};

// Returns how many pages of 2 MiB the site has reserved (vm.nr_hugepages). `root` is put before
// /sys, for tests.
std::uint64_t ReservedHugePages(const std::string& root = "");
// How many of these nobody uses, and nobody was promised.
std::uint64_t FreeHugePages(const std::string& root = "");

// Why memory lies in small pages, and what to set against it: a sentence for `forebay status`.
// Empty if no memory does.
std::string SmallPagesAdvice(const PageCounts& counts, HugePageUse use,
                             const std::string& root = "");

}  // namespace forebay::tier
