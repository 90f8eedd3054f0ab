// MADV_COLLAPSE (Linux 6.1) makes one huge page of a run whose pages are small or missing, unless
// /sys/kernel/mm/transparent_hugepage/shmem_enabled is "deny". It refuses runs without any page, so
// one page is touched first. Where shmem_enabled is "advise" or more, that touch alone makes the
// huge page (SharedRegion has advised it), also on older kernels, and the kernel is not asked.
#include "server/tier/ram/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "server/io/log.h"

namespace forebay::tier {
namespace {

constexpr std::uint64_t kSmallPageBytes = 4096;

// A read makes a page of shared memory as a write does. It may run while another thread writes to
// the byte, whose value does not matter, so the thread sanitizer is not to look.
__attribute__((no_sanitize("thread"))) void Touch(const std::byte* page) {
  static_cast<void>(*static_cast<const volatile std::byte*>(page));
}

// Whether the last page of the run exists.
bool HasLastPage(std::span<std::byte> run) {
  unsigned char is_resident = 0;
  return ::mincore(&run[run.size() - kSmallPageBytes], kSmallPageBytes, &is_resident) == 0 &&
         (is_resident & 1U) != 0;
}

// Touches the first page of the run. Returns whether that has made a huge page: then the last page
// came to be with the first one. Another thread may be filling the run already, with small pages,
// so a last page that existed before proves nothing.
bool TouchMakesHuge(std::span<std::byte> run) {
  const bool had_last_page = HasLastPage(run);
  Touch(run.data());
  return !had_last_page && HasLastPage(run);
}

// The first line of a small file; empty if there is none.
std::string ReadLine(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// The choice in brackets, as the kernel writes a setting: "always [never] deny".
std::string Setting(const std::string& line) {
  const std::size_t open = line.find('[');
  const std::size_t close = line.find(']');
  return open < close && close != std::string::npos ? line.substr(open + 1, close - open - 1)
                                                    : "unknown";
}

std::uint64_t PageCount(const std::string& root, const char* name) {
  std::ifstream file(root + "/sys/kernel/mm/hugepages/hugepages-2048kB/" + name);
  std::uint64_t pages = 0;
  return file >> pages ? pages : 0;
}

}  // namespace

HugePages::HugePages(std::span<const SharedRegion> regions, HugePageUse use)
    : regions_(regions), use_(use) {
  for (const SharedRegion& region : regions) {
    is_prepared_.emplace_back(region.bytes().size() / kHugePageBytes, false);
    if (region.is_reserved()) counts_.reserved_bytes += region.bytes().size();
  }
}

void HugePages::Prepare(std::size_t region, std::uint64_t offset, std::uint64_t bytes) {
  // Reserved pages were all allocated when the region was made.
  if (bytes == 0 || regions_[region].is_reserved()) return;
  // The kernel works without the mutex, which every block of the arena takes.
  for (const Runs& runs : TakeNew(region, offset, bytes)) {
    const std::uint64_t size = runs.count * kHugePageBytes;
    const std::uint64_t huge =
        MakeHuge(regions_[region].bytes().subspan(runs.first * kHugePageBytes, size));
    const MutexLock lock(mutex_);
    counts_.transparent_bytes += huge;
    counts_.small_bytes += size - huge;
  }
}

PageCounts HugePages::counts() const {
  const MutexLock lock(mutex_);
  return counts_;
}

// Marks the runs of the range that no call has had, and returns them, adjacent ones together.
std::vector<HugePages::Runs> HugePages::TakeNew(std::size_t region, std::uint64_t offset,
                                                std::uint64_t bytes) {
  std::vector<Runs> taken;
  const MutexLock lock(mutex_);
  std::vector<bool>& is_prepared = is_prepared_[region];
  const std::uint64_t last = (offset + bytes - 1) / kHugePageBytes;
  for (std::uint64_t run = offset / kHugePageBytes; run <= last; ++run) {
    if (is_prepared[run]) continue;
    is_prepared[run] = true;
    if (taken.empty() || taken.back().first + taken.back().count != run) taken.push_back({run, 0});
    ++taken.back().count;
  }
  return taken;
}

// Returns how many bytes of `runs`, which are adjacent, lie in huge pages afterwards.
std::uint64_t HugePages::MakeHuge(std::span<std::byte> runs) {
  if (!MayAsk()) return 0;
  std::vector<std::span<std::byte>> small;
  for (std::uint64_t at = 0; at < runs.size(); at += kHugePageBytes) {
    const std::span<std::byte> run = runs.subspan(at, kHugePageBytes);
    if (!TouchMakesHuge(run)) small.push_back(run);
  }
  // One call for all, because the kernel interrupts all processors once per call.
  if (small.empty() || Advise(runs, kCollapse)) {
    NoteSuccess();
    return runs.size();
  }
  // Some of the runs may have become huge pages before the failure: asking again for such a run
  // costs nothing, and tells.
  std::uint64_t huge = runs.size() - small.size() * kHugePageBytes;
  if (huge > 0) NoteSuccess();
  for (const std::span<std::byte> run : small) {
    if (!MayAsk()) break;
    if (Advise(run, kCollapse)) {
      NoteSuccess();
      huge += run.size();
    } else {
      NoteRefusal(errno);
    }
  }
  return huge;
}

bool HugePages::MayAsk() const {
  const MutexLock lock(mutex_);
  return use_ != HugePageUse::kOff && refusals_ < kRefusalsMax;
}

void HugePages::NoteSuccess() {
  const MutexLock lock(mutex_);
  refusals_ = 0;
}

void HugePages::NoteRefusal(int refusal_errno) {
  {
    const MutexLock lock(mutex_);
    counts_.refusal_errno = refusal_errno;
    if (++refusals_ != kRefusalsMax) return;
  }
  log::Info("no transparent huge pages for shared memory ({}): from now on its new pages have "
            "4 KiB; 'forebay status' says what to set",
            std::generic_category().message(refusal_errno));
}

std::uint64_t ReservedHugePages(const std::string& root) {
  return PageCount(root, "nr_hugepages");
}

std::uint64_t FreeHugePages(const std::string& root) {
  const std::uint64_t unused = PageCount(root, "free_hugepages");
  // Pages of mappings that have not touched them yet.
  const std::uint64_t promised = PageCount(root, "resv_hugepages");
  return unused - std::min(unused, promised);
}

std::string SmallPagesAdvice(const PageCounts& counts, HugePageUse use, const std::string& root) {
  if (counts.small_bytes == 0) return "";
  if (use == HugePageUse::kOff) return "daemon.huge_pages is off";
  const std::string setting = Setting(
      ReadLine(root + "/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  return "the kernel refused transparent huge pages (" +
         std::generic_category().message(counts.refusal_errno) + "; shmem_enabled is '" + setting +
         "'): set it to 'advise' or reserve pages with vm.nr_hugepages (docs/huge_pages.md)";
}

}  // namespace forebay::tier
