// TarScanner: walks a tar archive as its bytes pass by, in pieces of any size.
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

// Calls `on_member` once a member's headers have passed, before its data does. Refuses what
// cannot be read in place or could be read in two ways: sparse and multi-volume members,
// unknown types, links with data, data beyond the archive's end, bytes after the end marker.
// Bounded memory (one extension header of at most 1 MiB). Not thread-safe; of no use after an
// error.
class TarScanner {
 public:
  struct Archive {
    std::string path;         // for errors
    std::uint64_t bytes = 0;  // its size
  };
  using MemberVisitor = std::function<Status(const TarMember&)>;

  TarScanner(Archive archive, MemberVisitor on_member);

  Status Feed(std::span<const std::byte> bytes);
  // kDataLoss where the archive has not ended with an end marker (at least one zero block).
  Status End();
  // Bytes fed and looked at so far.
  std::uint64_t offset() const { return offset_; }
  // No ustar header is still to come before this offset; it may lie behind what was fed.
  std::uint64_t next_header_offset() const { return offset_ + skip_bytes_ - block_bytes_; }
  // Where the next member starts at the earliest, its extension headers included.
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
  std::uint64_t skip_bytes_ = 0;    // of member data and padding
  std::array<std::byte, kTarBlockBytes> block_;
  std::size_t block_bytes_ = 0;     // of the header so far
  std::uint64_t block_offset_ = 0;  // of the header
  char extension_type_ = '\0';
  std::uint64_t extension_bytes_ = 0;
  std::string extension_;
  // What extension headers say of the next member.
  std::optional<std::uint64_t> member_start_;
  std::optional<std::string> gnu_path_;
  PaxRecords pax_;
};

}  // namespace forebay::catalog
