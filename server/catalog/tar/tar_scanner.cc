// A state machine over 512-byte blocks: a header, the data of an extension header, or the end. Data
// of members are only counted (skip_bytes_) and never kept. A header block, and the data of an
// extension, are collected, because a piece may end within them.
#include "server/catalog/tar/tar_scanner.h"

#include <algorithm>

#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "server/catalog/input_error.h"

namespace forebay::catalog {
namespace {

// Extension headers describe the next member: 'x' pax, 'g' pax for all members, 'L' GNU long name,
// 'K' GNU long link target.
bool IsExtension(char type) {
  return type == 'x' || type == 'g' || type == 'L' || type == 'K';
}

std::string TypeText(char type) { return Quoted(std::string(1, type)); }

}  // namespace

TarScanner::TarScanner(Archive archive, MemberVisitor on_member)
    : archive_(std::move(archive)), on_member_(std::move(on_member)) {}

Error TarScanner::Refuse(std::string_view reason, ErrorCode code) const {
  return InputError(code, archive_.path, block_offset_, reason);
}

Status TarScanner::Feed(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    std::size_t taken = 0;
    // Data of members come first, because padding after an extension must be skipped before the
    // next block is collected, whatever the state is.
    if (skip_bytes_ > 0) {
      taken = static_cast<std::size_t>(std::min<std::uint64_t>(skip_bytes_, bytes.size()));
      skip_bytes_ -= taken;
      offset_ += taken;
    } else if (state_ == State::kExtension) {
      taken = std::min<std::size_t>(extension_bytes_ - extension_.size(), bytes.size());
      extension_.append(reinterpret_cast<const char*>(bytes.data()), taken);
      offset_ += taken;
      if (extension_.size() == extension_bytes_) FOREBAY_TRY(OnExtension());
    } else if (state_ == State::kEnd) {
      // Archives are padded with zeros. Anything else after the end marker would be a second
      // archive, which some readers read and others do not.
      const auto found = std::find_if(bytes.begin(), bytes.end(),
                                      [](std::byte b) { return b != std::byte{0}; });
      if (found != bytes.end()) {
        block_offset_ = offset_ + static_cast<std::uint64_t>(found - bytes.begin());
        return Refuse("bytes after the end-of-archive marker (concatenated archives?)");
      }
      taken = bytes.size();
      offset_ += taken;
    } else {
      if (block_bytes_ == 0) block_offset_ = offset_;
      taken = std::min<std::size_t>(kTarBlockBytes - block_bytes_, bytes.size());
      // The block is copied even if it lies in this piece as a whole: 512 bytes per member are
      // little beside its data, and there is one way for all blocks.
      std::copy_n(bytes.begin(), taken, block_.begin() + static_cast<std::ptrdiff_t>(block_bytes_));
      block_bytes_ += taken;
      offset_ += taken;
      if (block_bytes_ == kTarBlockBytes) FOREBAY_TRY(OnBlock());
    }
    bytes = bytes.subspan(taken);
  }
  return {};
}

// A zero block ends the archive. Writers write two of them; GNU tar accepts one, so this does too.
Status TarScanner::OnBlock() {
  block_bytes_ = 0;
  if (IsZeroBlock(block_)) {
    if (member_start_.has_value()) {
      return Refuse("the archive ends after an extension header without a member");
    }
    state_ = State::kEnd;
    return {};
  }
  FOREBAY_ASSIGN(const TarBlock block, ParseTarBlock(Place(block_offset_), block_));
  return OnHeader(block);
}

// Compares a size from a header with what is left of the archive, before anything relies on it.
Status TarScanner::CheckFits(std::uint64_t bytes) const {
  // A member that claims more than the archive has would make the scanner skip to its end and lose
  // all later members.
  if (offset_ <= archive_.bytes && bytes <= archive_.bytes - offset_) return {};
  return Refuse("member of " + std::to_string(bytes) + " bytes runs past the end of the archive",
                ErrorCode::kDataLoss);
}

// Handles a header block: of an extension, whose data are then collected, or of a member.
Status TarScanner::OnHeader(const TarBlock& block) {
  if (!member_start_.has_value()) member_start_ = block_offset_;
  if (!IsExtension(block.type)) return OnMemberHeader(block);
  FOREBAY_TRY(CheckFits(block.bytes));
  if (block.bytes > limits::kCatalogHeaderBytesMax) {
    return Refuse("extension header of " + std::to_string(block.bytes) + " bytes exceeds " +
                      std::to_string(limits::kCatalogHeaderBytesMax) +
                      " (kCatalogHeaderBytesMax)",
                  ErrorCode::kResourceExhausted);
  }
  extension_type_ = block.type;
  extension_bytes_ = block.bytes;
  extension_.clear();
  state_ = State::kExtension;
  return extension_bytes_ == 0 ? OnExtension() : Status();
}

// Handles the complete data of an extension header. Its values hold for the next member only.
Status TarScanner::OnExtension() {
  state_ = State::kHeader;
  skip_bytes_ = RoundToTarBlock(extension_bytes_) - extension_bytes_;  // padding to a whole block
  if (extension_type_ == 'K') return {};  // the target of a link, which has no data
  if (extension_type_ == 'L') {
    // GNU writes a NUL at the end. NormalizeMemberPath refuses a NUL anywhere else.
    if (extension_.ends_with('\0')) extension_.pop_back();
    gnu_path_ = extension_;
    return {};
  }
  // The place is that of the first record's first byte, so that errors lead to the record.
  FOREBAY_ASSIGN(PaxRecords records,
                 ParsePax(Place(offset_ - extension_bytes_), extension_));
  if (extension_type_ == 'g') {
    // One path or size for all members makes no sense; readers disagree about it, so it is refused.
    if (records.path.has_value() || records.bytes.has_value()) {
      return Refuse("a global pax header sets the path or the size of every member");
    }
    return {};
  }
  if (records.path.has_value()) pax_.path = std::move(records.path);
  if (records.bytes.has_value()) pax_.bytes = records.bytes;
  return {};
}

// Handles a member's own header: puts together what the extensions and the header say, refuses what
// cannot be delivered, and reports the member. Pax wins over GNU, GNU over ustar.
Status TarScanner::OnMemberHeader(const TarBlock& block) {
  // A header's own size is not used if pax gives one: for files of 8 GiB and more, some writers put
  // 0 there.
  TarMember member;
  member.header_offset = block_offset_;
  member.start_offset = member_start_.value_or(block_offset_);
  member.data_offset = offset_;
  member.bytes = pax_.bytes.value_or(block.bytes);
  std::string path = block.path;
  if (pax_.path.has_value()) {
    path = *pax_.path;
  } else if (gnu_path_.has_value()) {
    path = *gnu_path_;
  }
  // Extensions apply to one member only.
  member_start_.reset();
  gnu_path_.reset();
  pax_ = {};
  // The path of every member is checked, also of those that no sample takes: a path with ".." marks
  // an archive that should not be trusted.
  FOREBAY_ASSIGN(member.path, NormalizeMemberPath(Place(block_offset_), path));
  if (block.type == 'S') {
    return Refuse("sparse members are not supported", ErrorCode::kUnimplemented);
  }
  const bool is_link_or_device = block.type >= '1' && block.type <= '6';
  if (is_link_or_device && member.bytes > 0) {
    return Refuse("member of type " + TypeText(block.type) + " says that it has data");
  }
  // If the link were skipped, its sample would lack this field and no error would say so.
  const bool is_link = block.type == '1' || block.type == '2';
  if (is_link && SplitMemberPath(member.path)) {
    const bool is_hard = block.type == '1';
    return Refuse("member " + Quoted(member.path) + " is a " + (is_hard ? "hard" : "symbolic") +
                      " link to " + Quoted(block.link) +
                      " and has no data; write the archive again with 'tar " +
                      (is_hard ? "--hard-dereference" : "--dereference") + "'",
                  ErrorCode::kUnimplemented);
  }
  // In v7 archives, which have no type for directories, a directory's name ends with a slash.
  member.is_regular = (block.type == '0' || block.type == '7') && !path.ends_with('/');
  const bool is_known = block.type == '0' || block.type == '7' || is_link_or_device ||
                        block.type == 'V' || block.type == 'D';
  if (!is_known) {
    return Refuse("member of unknown type " + TypeText(block.type), ErrorCode::kUnimplemented);
  }
  if (member.is_regular && member.path.empty()) return Refuse("a member without a path");
  FOREBAY_TRY(CheckFits(member.bytes));
  skip_bytes_ = RoundToTarBlock(member.bytes);
  return on_member_(member);
}

Status TarScanner::End() {
  block_offset_ = offset_;
  if (offset_ != archive_.bytes) {
    return Refuse("the archive ends here, but had " + std::to_string(archive_.bytes) +
                      " bytes when the scan began; it was truncated meanwhile",
                  ErrorCode::kDataLoss);
  }
  if (state_ != State::kEnd) {
    return Refuse("truncated: the archive ends without its end marker", ErrorCode::kDataLoss);
  }
  return {};
}

}  // namespace forebay::catalog
