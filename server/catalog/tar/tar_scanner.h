// TarScanner: finds the members of a tar archive that is fed in pieces of any size.
// TarObjectScanner feeds it and groups the members into samples.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "proto/contract/result.h"
#include "server/catalog/tar/tar_block.h"

namespace forebay::catalog {

// A member as it lies in the archive.
struct TarMember {
  std::string path;  // normalised
  bool is_regular = false;
  std::uint64_t start_offset = 0;   // of its first extension header, or of its header
  std::uint64_t header_offset = 0;  // of its ustar header
  std::uint64_t data_offset = 0;
  std::uint64_t bytes = 0;
};

// Calls `on_member` when a member's headers have been fed, before its data. Refuses what cannot be
// read in place, and what two readers could read in two ways: sparse and multi-volume members,
// unknown types, links with data, data beyond the archive's end, bytes after the end marker.
// Memory: one extension header of at most 1 MiB. Not thread-safe. Unusable after an error.
class TarScanner {
 public:
  struct Archive {
    std::string path;         // for errors
    std::uint64_t bytes = 0;  // its size
  };
  using MemberVisitor = std::function<Status(const TarMember&)>;

  TarScanner(Archive archive, MemberVisitor on_member);

  Status Feed(std::span<const std::byte> bytes);
  // Ends the archive. kDataLoss if it lacks an end marker (at least one zero block), or if fewer
  // bytes than its size were fed.
  Status End();
  // The number of bytes fed so far.
  std::uint64_t offset() const { return offset_; }
  // The next ustar header begins at this offset or later. It may lie beyond what was fed.
  std::uint64_t next_header_offset() const { return offset_ + skip_bytes_ - block_bytes_; }
  // The next member, its extension headers included, begins at this offset or later.
  std::uint64_t next_member_offset() const {
    return member_start_.value_or(next_header_offset());
  }

 private:
  enum class State : std::uint8_t { kHeader, kExtension, kEnd };

  Status OnBlock();
  Status OnHeader(const TarBlock& block);
  Status OnMemberHeader(const TarBlock& block);
  Status OnExtension();
  Status CheckFits(std::uint64_t bytes) const;
  TarPlace Place(std::uint64_t offset) const { return {archive_.path, offset}; }
  Error Refuse(std::string_view reason, ErrorCode code = ErrorCode::kInvalidArgument) const;

  Archive archive_;
  MemberVisitor on_member_;
  State state_ = State::kHeader;
  std::uint64_t offset_ = 0;
  std::uint64_t skip_bytes_ = 0;    // of data and padding before the next header
  std::array<std::byte, kTarBlockBytes> block_;
  std::size_t block_bytes_ = 0;     // of the header block that were fed so far
  std::uint64_t block_offset_ = 0;  // of the header block
  char extension_type_ = '\0';
  std::uint64_t extension_bytes_ = 0;
  std::string extension_;
  // What extension headers say about the next member.
  std::optional<std::uint64_t> member_start_;
  std::optional<std::string> gnu_path_;
  PaxRecords pax_;
};

}  // namespace forebay::catalog
