// RegionMap: the daemon's shared memory, mapped read-only into this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"
#include "proto/contract/wire_layout.h"

namespace forebay::internal {

// Sole owner of one read-only mapping of a memfd. Move-only.
class RegionMapping {
 public:
  RegionMapping() = default;
  // Maps `entry.bytes` of `memfd`. kFailedPrecondition where the memfd is not sealed against
  // shrinking and growing (truncating it would turn every read into SIGBUS), kDataLoss where
  // it is not as large as the entry says, else the error of the system call.
  static Result<RegionMapping> Map(const RegionEntry& entry, const UniqueFd& memfd);

  RegionMapping(RegionMapping&& other) noexcept { *this = std::move(other); }
  RegionMapping& operator=(RegionMapping&& other) noexcept;
  RegionMapping(const RegionMapping&) = delete;
  RegionMapping& operator=(const RegionMapping&) = delete;
  ~RegionMapping();

  const std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  const std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

// All regions of one connection. Filled during the handshake, immutable (and so thread-safe)
// after. Batches share it: memory stays mapped until the last batch is gone, whatever happens
// to the connection or the daemon.
class RegionMap {
 public:
  // kInvalidArgument for an id beyond limits::kRegionCountMax or one that is there already.
  Status Add(const RegionEntry& entry, const UniqueFd& memfd);

  // The bytes that `span` names, or null where any part of it lies outside a mapped region.
  // A span of no bytes at a valid offset has a non-null address.
  const std::byte* Find(const WireSpan& span) const {
    if (span.region >= regions_.size() || !regions_[span.region]) return nullptr;
    const RegionMapping& region = *regions_[span.region];
    if (span.offset > region.bytes() || span.length > region.bytes() - span.offset) {
      return nullptr;
    }
    return region.data() + span.offset;
  }

  // By id; null where an id was not announced. Each may be kept beyond the others.
  std::span<const std::shared_ptr<const RegionMapping>> regions() const { return regions_; }
  std::size_t count() const { return count_; }
  std::uint64_t total_bytes() const { return total_bytes_; }

 private:
  std::vector<std::shared_ptr<const RegionMapping>> regions_;  // by id
  std::size_t count_ = 0;
  std::uint64_t total_bytes_ = 0;
};

}  // namespace forebay::internal
