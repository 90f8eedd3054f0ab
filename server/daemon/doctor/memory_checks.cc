// Memory of the tiers, and huge pages. The shared memory is created as the daemon creates it, but
// no page of it is touched, so it takes none: that shows limits of the process, such as
// RLIMIT_FSIZE (a memfd is a file) and RLIMIT_AS. Whether there is enough memory for all pages is
// computed.
#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "proto/contract/shared_mapping.h"
#include "server/daemon/config/tier_config.h"
#include "server/daemon/doctor/checks.h"
#include "server/tier/capacity.h"
#include "server/tier/ram/huge_pages.h"

namespace forebay::daemon {
namespace {

// How much of the memory is tried for transparent huge pages.
constexpr std::uint64_t kTrialBytes = 8 * limits::kMiB;

// The configured sizes.
struct WantedMemory {
  tier::RamArena::Options ram;
  tier::RamArena::Options slots;
  std::uint64_t decode_bytes = 0;
  std::uint64_t shared_bytes() const { return ram.capacity_bytes + slots.capacity_bytes; }
  std::uint64_t bytes() const { return shared_bytes() + decode_bytes; }
};

Result<WantedMemory> Wanted(const Config& config) {
  WantedMemory wanted;
  FOREBAY_ASSIGN(wanted.ram, RamArenaOptions(config));
  FOREBAY_ASSIGN(wanted.slots, SlotArenaOptions(config));
  const auto decode = tier::ParseCapacity(config.decode_capacity, tier::MemoryLimitBytes());
  if (!decode.has_value()) return decode.error().WithContext("decode.capacity");
  wanted.decode_bytes = *decode;
  return wanted;
}

// Memory that can be had without swapping (MemAvailable of /proc/meminfo); 0: not known.
std::uint64_t AvailableBytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view kName = "MemAvailable:";
    if (line.starts_with(kName)) return std::stoull(line.substr(kName.size())) * limits::kKiB;
  }
  return 0;
}

// Creates the regions of an arena and destroys them. Returns how many bytes they have.
Result<std::uint64_t> TryToCreate(tier::RamArena::Options options) {
  // Reserved pages would be allocated and zeroed at once.
  options.huge_pages = tier::HugePageUse::kOff;
  FOREBAY_ASSIGN(const auto arena, tier::RamArena::Create(options));
  std::uint64_t bytes = 0;
  for (const tier::SharedRegion& region : arena->regions()) bytes += region.bytes().size();
  return bytes;
}

std::string CreationRemedy(const Error& error) {
  switch (error.system_errno()) {
    case EFBIG: return "raise the limit of the size of files (ulimit -f), also for memfds";
    case ENOMEM: return "raise the limit of address space (ulimit -v), or lower tier.ram.capacity";
    case EMFILE: case ENFILE: return "raise the limit of open files (ulimit -n)";
    case ENOSYS: case EPERM: return "allow memfd_create and sealing on this node (seccomp)";
    case EINVAL: return "shared memory needs Linux 5.1 or later (F_SEAL_FUTURE_WRITE)";
    default: return "lower tier.ram.capacity and slots.capacity";
  }
}

// The memory of reserved huge pages is not among the available one.
std::uint64_t InReservedPages(const Config& config, std::uint64_t shared_bytes) {
  if (ConfiguredHugePages(config) != tier::HugePageUse::kAuto) return 0;
  return std::min(shared_bytes, tier::FreeHugePages() * kHugePageBytes);
}

}  // namespace

void CheckMemory(const Config& config, CheckReport& report) {
  const auto wanted = Wanted(config);
  if (!wanted.has_value()) {
    return report.Fail(wanted.error().message(), "give the capacity in bytes, as in 8GiB");
  }
  report.Begin("creating the shared memory");
  for (const tier::RamArena::Options& options : {wanted->ram, wanted->slots}) {
    const auto created = TryToCreate(options);
    if (!created.has_value()) {
      return report.Fail(created.error().message(), CreationRemedy(created.error()));
    }
  }
  const std::uint64_t limit_bytes = tier::MemoryLimitBytes();
  const std::uint64_t available_bytes =
      AvailableBytes() + InReservedPages(config, wanted->shared_bytes());
  const std::string text = fmt::format(
      "RAM tier {}, slots {}, decoded chunks up to {}: {} of the {} that this process may use, of "
      "which {} are available now",
      SizeText(wanted->ram.capacity_bytes), SizeText(wanted->slots.capacity_bytes),
      SizeText(wanted->decode_bytes), SizeText(wanted->bytes()), SizeText(limit_bytes),
      SizeText(std::min(available_bytes, limit_bytes)));
  const std::vector<Figure> figures = {{"ram_bytes", wanted->ram.capacity_bytes},
                                       {"slot_bytes", wanted->slots.capacity_bytes},
                                       {"decode_bytes", wanted->decode_bytes},
                                       {"limit_bytes", limit_bytes},
                                       {"available_bytes", available_bytes}};
  const std::string remedy = "lower tier.ram.capacity, slots.capacity or decode.capacity, or ask "
                             "the scheduler for more memory";
  if (wanted->bytes() > limit_bytes) {
    report.Fail(text + "; the kernel would end processes of the job", remedy, figures);
  } else if (wanted->bytes() > available_bytes) {
    report.Warn(text, "end the processes that use the memory of this node, or " + remedy, figures);
  } else {
    report.Ok(text, figures);
  }
}

void CheckHugePages(const Config& config, CheckReport& report) {
  const tier::HugePageUse use = ConfiguredHugePages(config);
  if (use == tier::HugePageUse::kOff) return report.Ok("daemon.huge_pages is off");
  const auto wanted = Wanted(config);
  if (!wanted.has_value()) {
    return report.Warn("not tried: " + wanted.error().message(), "see the check of memory");
  }
  if (use == tier::HugePageUse::kAuto && tier::ReservedHugePages() > 0) {
    const auto ram = TryToCreate(wanted->ram);
    const auto slots = TryToCreate(wanted->slots);
    if (!ram.has_value() || !slots.has_value()) {
      return report.Warn("not tried, because the shared memory cannot be created",
                         "see the check of memory");
    }
    const std::uint64_t needed = (*ram + *slots) / kHugePageBytes;
    const std::uint64_t free = tier::FreeHugePages();
    const std::string text = fmt::format(
        "{} pages of 2 MiB are reserved, {} of them free; the shared memory has {}",
        tier::ReservedHugePages(), free, needed);
    const std::vector<Figure> figures = {{"free_pages", free}, {"needed_pages", needed}};
    if (free >= needed) return report.Ok(text, figures);
    return report.Warn(text,
                       fmt::format("set vm.nr_hugepages to {} or more, or daemon.huge_pages to "
                                   "transparent (docs/huge_pages.md)",
                                   tier::ReservedHugePages() + needed - free),
                       figures);
  }
  report.Begin("asking the kernel for transparent huge pages");
  const auto arena = tier::RamArena::Create(
      {.capacity_bytes = kTrialBytes, .huge_pages = tier::HugePageUse::kTransparent});
  if (!arena.has_value()) {
    return report.Warn("not tried: " + arena.error().message(), CreationRemedy(arena.error()));
  }
  // The arena asks for huge pages when it gives out memory.
  const auto block = (*arena)->Allocate(kTrialBytes);
  const tier::PageCounts counts = (*arena)->page_counts();
  const std::string text =
      fmt::format("{} of {} of shared memory lie in transparent huge pages",
                  SizeText(counts.transparent_bytes), SizeText(kTrialBytes));
  const std::vector<Figure> figures = {{"transparent_bytes", counts.transparent_bytes},
                                       {"small_bytes", counts.small_bytes}};
  if (!block.has_value() || counts.small_bytes > 0) {
    return report.Warn(text, tier::SmallPagesAdvice(counts, use), figures);
  }
  report.Ok(text, figures);
}

}  // namespace forebay::daemon
