// FaultCase: one cell of the fault matrix: what fails, when, and on which tiers and order.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/order_spec.h"

namespace forebay::fault {

enum class FaultKind : std::uint8_t {
  // Faults of the GFS.
  kOutage300Ms,   // every operation fails with a transient errno for this time
  kOutage1S,
  kOutage10S,
  kOutage60S,
  kLongOutage,    // longer than stage.retry_for
  kIoErrors,      // a few operations fail with EIO
  kInterrupts,    // a few operations fail with EINTR
  kRemount,       // files and directories that are open become stale for ever
  kHang,          // one request is not answered while others are
  kHangAtEnd,     // as kHang, and the daemon is told to stop meanwhile
  kShortReads,    // a few reads return half of the bytes
  kFlippedRead,   // one bit of one read
  kFlippedReads,  // one bit of every read, as if the objects had been changed
  // Faults of the SSD.
  kSsdFlips,      // one bit of several segments
  kSsdGone,       // the directory and all its files
  kSsdFails,      // every call fails with EIO
  kSsdFull,       // the file system is full
  kNone,          // no fault, to compare with; not in the matrix
};

enum class Phase : std::uint8_t {
  kCataloguing,  // before the first operation of the pass over the data set
  kStaging,      // a part of the data set was read
  kStreaming,    // a reader waits for a batch that needs the failing part
  kEviction,     // a reader has had a part of an epoch, and extents were evicted
};

enum class Tiers : std::uint8_t {
  kRam,        // holds the data set
  kSmallRam,   // smaller than the data set
  kRamAndSsd,  // a small RAM tier, and an SSD that has room for the rest
  kLostSsd,    // as kRamAndSsd, and the SSD was lost before the fault
};

enum class Format : std::uint8_t { kRecords, kTar, kFolder };

// How a reader gets its batches.
enum class Arrival : std::uint8_t { kContiguous, kViews, kInline };

struct FaultCase {
  FaultKind fault = FaultKind::kOutage300Ms;
  std::optional<FaultKind> second_fault;  // at the same moment
  Phase phase = Phase::kCataloguing;
  OrderMode order = OrderMode::kGlobal;
  Tiers tiers = Tiers::kRam;
  Format format = Format::kRecords;
  Arrival arrival = Arrival::kContiguous;
  std::uint64_t seed = 0;  // for bytes, orders, and the place of the fault

  std::vector<FaultKind> faults() const;
  bool Has(FaultKind kind) const { return fault == kind || second_fault == kind; }
  // "outage-1s/staging/block/ram/tar/views/7"; two faults are joined by "+".
  std::string Name() const;
};

std::optional<FaultCase> ParseCase(std::string_view name);
// For messages of tests.
void PrintTo(const FaultCase& fault_case, std::ostream* out);

// True for faults that gfs_emu injects.
bool IsOfGfs(FaultKind kind);
// True for faults that a reader meets only when it reads extents that are on the SSD already.
bool HitsReadsOfSsd(FaultKind kind);

// Why the case can show nothing; empty if it can. All exclusions are here.
std::string_view WhyExcluded(const FaultCase& fault_case);

// Every cell that is not excluded: formats other than records while cataloguing only, where they
// differ; `seed` decides about arrivals and is every case's own seed.
std::vector<FaultCase> WholeMatrix(std::uint64_t seed);
// Few quick cells of it, in which every fault meets every phase, order and kind of tiers that it
// can meet.
std::vector<FaultCase> QuickSelection(std::uint64_t seed);
// A case of any dimensions, with one or two faults. Excludes none but the excluded.
FaultCase RandomCase(std::uint64_t& random_state);

}  // namespace forebay::fault
