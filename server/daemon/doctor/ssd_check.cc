// The directory of the SSD tier is used as the segment store uses it: a file is created with
// O_DIRECT, its space is reserved, it is written in requests of 1 MiB, eight at a time, synced, and
// read back. The rates are those of one file; a daemon writes several at a time.
#include <linux/magic.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/daemon/config/tier_config.h"
#include "server/daemon/doctor/checks.h"
#include "server/daemon/doctor/directory_trial.h"
#include "server/daemon/doctor/measured_transfer.h"
#include "server/tier/ssd/manifest_log.h"

namespace forebay::daemon {
namespace {

constexpr const char* kSsdKey = "tier.ssd.directory";
constexpr std::uint64_t kTrialBytesMax = 256 * limits::kMiB;
constexpr std::uint64_t kRequestBytes = limits::kMiB;
constexpr std::size_t kRequests = 8;
constexpr std::int64_t kTransferNs = 2'000'000'000;  // for writing, and once more for reading

// Bytes of the segments that an earlier daemon has left, which belong to the tier.
Result<std::uint64_t> SegmentBytes(io::IoBackend& backend, io::Directory& directory) {
  FOREBAY_ASSIGN(const auto queue, backend.CreateQueue({.depth = 1}));
  FOREBAY_ASSIGN(const tier::ParsedManifest manifest, tier::ManifestLog(directory).Load(*queue));
  // The last record of a key decides.
  std::unordered_map<tier::ExtentKey, std::uint64_t, tier::ExtentKeyHash> live;
  for (const tier::ManifestRecord& record : manifest.records) {
    live[record.key] =
        record.kind == tier::ManifestKind::kPublish ? record.shape.file_bytes() : 0;
  }
  std::uint64_t bytes = 0;
  for (const auto& [key, file_bytes] : live) bytes += file_bytes;
  return bytes;
}

// Compares free space with the capacity. Returns the free bytes, or nothing after a failure.
std::optional<std::uint64_t> CheckSpace(const Config& config, const OwnDirectory& own,
                                        io::IoBackend& backend, io::Directory& directory,
                                        CheckReport& report) {
  const auto space = directory.FreeSpace();
  const auto capacity = SsdCapacity(config, directory);
  if (!space.has_value() || !capacity.has_value()) {
    const Error& error = space.has_value() ? capacity.error() : space.error();
    report.Fail(error.message(), DirectoryRemedy(error, kSsdKey));
    return std::nullopt;
  }
  std::uint64_t used_bytes = 0;
  if (own.exists) {
    const auto segments = SegmentBytes(backend, directory);
    if (!segments.has_value()) {
      report.Fail(segments.error().message(), DirectoryRemedy(segments.error(), kSsdKey));
      return std::nullopt;
    }
    used_bytes = *segments;
  }
  // Only the part of the capacity that has no segments yet must be free.
  const std::uint64_t missing_bytes = *capacity - std::min(*capacity, used_bytes);
  const std::string text =
      fmt::format("{}: tier.ssd.capacity is {}, {} are free{}", own.Described(),
                  SizeText(*capacity), SizeText(space->free_bytes),
                  used_bytes == 0 ? "" : ", and the tier has " + SizeText(used_bytes) + " already");
  const std::vector<Figure> figures = {{"capacity_bytes", *capacity},
                                       {"free_bytes", space->free_bytes},
                                       {"segment_bytes", used_bytes}};
  if (space->free_bytes < missing_bytes) {
    report.Warn(text,
                fmt::format("free {} on this file system, or lower tier.ssd.capacity; when it is "
                            "full, the tier takes no more extents",
                            SizeText(missing_bytes - space->free_bytes)),
                figures);
  } else if (space->file_system_type == TMPFS_MAGIC) {
    // On many nodes /tmp is one. It works, and takes the memory that the job needs.
    report.Warn(text + ", on a tmpfs, whose files lie in memory",
                fmt::format("set {} to a directory on an SSD, or leave it empty and raise "
                            "tier.ram.capacity",
                            kSsdKey),
                figures);
  } else {
    report.Ok(text, figures);
  }
  return space->free_bytes;
}

// The steps whose errors are reported alike.
Status Measure(const Config& config, io::IoBackend& backend, io::Directory& directory,
               const io::Clock& clock, std::uint64_t bytes, CheckReport& report) {
  FOREBAY_ASSIGN(const TrialFile file, CreateTrialFile(directory, config.ssd_direct));
  const Status reserved = file.writer->Preallocate(bytes);
  if (!reserved.has_value() && reserved.error().code() != ErrorCode::kUnimplemented) {
    return reserved;
  }
  TransferOptions options = {
      .kind = io::OpKind::kWrite, .request_bytes = kRequestBytes, .requests = kRequests};
  options.deadline_ns = clock.NowNs() + kTransferNs;
  const FileRange written_range = {.file = file.writer.get(), .bytes = bytes};
  const std::int64_t begun_ns = clock.NowNs();
  FOREBAY_ASSIGN(TransferRate written, Transfer(backend, clock, {&written_range, 1}, options));
  report.Begin("syncing a file");
  FOREBAY_ASSIGN(const auto queue, backend.CreateQueue({.depth = 1}));
  FOREBAY_TRY(io::DataSync(*queue, *file.writer));
  // Bytes that are not on the device yet were not written for a segment store.
  written.ns = clock.NowNs() - begun_ns;
  FOREBAY_TRY(directory.Sync(""));
  report.Begin("reading the file back");
  if (!file.reader->is_direct()) file.reader->DropCached();
  options.kind = io::OpKind::kRead;
  options.deadline_ns = clock.NowNs() + kTransferNs;
  const FileRange read_range = {.file = file.reader.get(), .bytes = written.bytes};
  FOREBAY_ASSIGN(const TransferRate read, Transfer(backend, clock, {&read_range, 1}, options));
  const bool is_direct = file.writer->is_direct() && file.reader->is_direct();
  const std::string text =
      fmt::format("{} written and synced at {}/s, {} read at {}/s, {}", SizeText(written.bytes),
                  SizeText(written.BytesPerSecond()), SizeText(read.bytes),
                  SizeText(read.BytesPerSecond()),
                  is_direct ? "past the page cache" : "through the page cache");
  const std::vector<Figure> figures = {{"written_bytes", written.bytes},
                                       {"write_bytes_per_s", written.BytesPerSecond()},
                                       {"read_bytes", read.bytes},
                                       {"read_bytes_per_s", read.BytesPerSecond()},
                                       {"is_direct", is_direct ? 1U : 0U}};
  // The tier works without O_DIRECT too, so that is no failure.
  if (config.ssd_direct && !is_direct) {
    report.Warn(text + ", because the file system refuses O_DIRECT",
                fmt::format("set {} to a directory of another file system; with this one, extents "
                            "take memory of the page cache",
                            kSsdKey),
                figures);
  } else {
    report.Ok(text, figures);
  }
  return {};
}

}  // namespace

void CheckSsd(const Config& config, const DaemonPaths& paths, io::IoBackend& backend,
              const io::Clock& clock, CheckReport& report) {
  if (paths.ssd_directory.empty()) {
    return report.Ok(fmt::format("{} is not set, so there is no SSD tier", kSsdKey));
  }
  const auto own = TryDirectory(paths.ssd_directory, kSsdKey, report);
  if (!own) return;
  const auto directory = backend.OpenDirectory(own->nearest);
  if (!directory.has_value()) {
    return report.Fail(directory.error().message(), DirectoryRemedy(directory.error(), kSsdKey));
  }
  const auto free_bytes = CheckSpace(config, *own, backend, **directory, report);
  if (!free_bytes) return;
  // Half of the space at most: other programs may need some while the file is there.
  const std::uint64_t bytes =
      std::min(kTrialBytesMax, *free_bytes / 2 / kRequestBytes * kRequestBytes);
  if (bytes == 0) {
    return report.Fail(fmt::format("no rate was measured, because only {} are free",
                                   SizeText(*free_bytes)),
                       DirectoryRemedy(Error::FromErrno(ENOSPC, ""), kSsdKey));
  }
  report.Begin("writing a file in " + own->nearest);
  const Status measured = Measure(config, backend, **directory, clock, bytes, report);
  if (measured.has_value()) return;
  // Some file systems accept O_DIRECT when a file is opened, and refuse the writes.
  const bool may_be_direct = config.ssd_direct && measured.error().system_errno() == EINVAL;
  report.Fail(measured.error().message(), may_be_direct
                                              ? "set tier.ssd.direct to false"
                                              : DirectoryRemedy(measured.error(), kSsdKey));
}

}  // namespace forebay::daemon
