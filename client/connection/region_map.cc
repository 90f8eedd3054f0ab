// Maps the daemon's memory into this process, read-only. A memfd that could still shrink would turn
// a read into a SIGBUS, so its seals are checked before it is mapped, and its size against what the
// daemon announced.
#include "client/connection/region_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <utility>

#include "proto/contract/limits.h"
#include "proto/contract/shared_mapping.h"

namespace forebay::internal {
namespace {

std::string RegionName(const RegionEntry& entry) {
  return "shared memory region " + std::to_string(entry.id);
}

Status CheckMemfd(const RegionEntry& entry, const UniqueFd& memfd) {
  const int seals = ::fcntl(memfd.get(), F_GET_SEALS);
  if (seals < 0) return Error::FromErrno(errno, RegionName(entry) + " is not a memfd");
  constexpr int kSealsNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  if ((seals & kSealsNeeded) != kSealsNeeded) {
    return Error(ErrorCode::kFailedPrecondition,
                 RegionName(entry) + " is not sealed against shrinking and growing");
  }
  struct stat info = {};
  if (::fstat(memfd.get(), &info) != 0) return Error::FromErrno(errno, RegionName(entry));
  // A mapping beyond the file's end can be made, and kills the reader with SIGBUS later.
  if (info.st_size < 0 || static_cast<std::uint64_t>(info.st_size) < entry.bytes) {
    return Error(ErrorCode::kDataLoss,
                 RegionName(entry) + " has " + std::to_string(info.st_size) +
                     " bytes, the daemon announced " + std::to_string(entry.bytes));
  }
  return {};
}

}  // namespace

Result<RegionMapping> RegionMapping::Map(const RegionEntry& entry, const UniqueFd& memfd) {
  FOREBAY_TRY(CheckMemfd(entry, memfd));
  RegionMapping mapping;
  if (entry.bytes == 0) {
    return Error(ErrorCode::kInvalidArgument, RegionName(entry) + " has no bytes");
  }
  // Read-only: a program that writes through a batch's span is stopped at that write, instead of
  // changing what other ranks read.
  const auto mapped = MapShared(memfd.get(), entry.bytes, PROT_READ);
  if (!mapped.has_value()) return mapped.error().WithContext(RegionName(entry));
  mapping.data_ = mapped->data();
  mapping.bytes_ = entry.bytes;
  // Pages that this process is the first to touch are huge then, too, where the kernel allows it. A
  // refusal costs speed only.
  (void)::madvise(mapped->data(), mapped->size(), MADV_HUGEPAGE);
  // A core dump of the trainer would otherwise contain gigabytes of the daemon's memory.
  (void)::madvise(mapped->data(), mapped->size(), MADV_DONTDUMP);
  return mapping;
}

RegionMapping& RegionMapping::operator=(RegionMapping&& other) noexcept {
  if (this != &other) {
    // The mapping that this object had is unmapped by the other's destructor.
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  return *this;
}

RegionMapping::~RegionMapping() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), bytes_);
}

Status RegionMap::Add(const RegionEntry& entry, const UniqueFd& memfd) {
  if (entry.id >= limits::kRegionCountMax) {
    return Error(ErrorCode::kInvalidArgument, RegionName(entry) + " is beyond kRegionCountMax");
  }
  // A second mapping under the same id would replace memory that spans have been checked against.
  if (entry.id < regions_.size() && regions_[entry.id]) {
    return Error(ErrorCode::kInvalidArgument, RegionName(entry) + " was announced twice");
  }
  FOREBAY_ASSIGN(RegionMapping mapping, RegionMapping::Map(entry, memfd));
  if (entry.id >= regions_.size()) regions_.resize(std::size_t{entry.id} + 1);
  regions_[entry.id] = std::make_shared<const RegionMapping>(std::move(mapping));
  ++count_;
  total_bytes_ += entry.bytes;
  return {};
}

}  // namespace forebay::internal
