// Two running checksums: one over the whole image and one over the piece at hand. Pieces do not
// overlap and are in order, so one at a time is enough. A piece may span several parts, and a part
// several pieces.
#include "server/tier/image_verifier.h"

#include <algorithm>
#include <string>

namespace forebay::tier {

Status ImageVerifier::CheckShape(const ExtentKey& key, std::uint64_t image_bytes,
                                 const ExtentChecksums& checksums,
                                 std::span<const catalog::Range> pieces) {
  const auto fail = [&key](const char* why) {
    return Error(ErrorCode::kDataLoss, "extent " + KeyText(key) + ": " + why);
  };
  // Without pieces only the image's checksum is compared.
  if (pieces.empty()) return {};
  if (pieces.size() != checksums.pieces.size()) {
    return fail("its table has another number of checksums than its catalog has pieces");
  }
  // Feed relies on this order: it looks at one piece at a time and never goes back.
  std::uint64_t end = 0;
  for (const catalog::Range& piece : pieces) {
    if (piece.offset < end || piece.offset > image_bytes ||
        piece.length > image_bytes - piece.offset) {
      return fail("its pieces overlap, or lie outside its image");
    }
    end = piece.offset + piece.length;
  }
  return {};
}

ImageVerifier::ImageVerifier(const ExtentKey& key, std::uint64_t image_bytes,
                             const ExtentChecksums& checksums,
                             std::span<const catalog::Range> pieces)
    : key_(key),
      image_bytes_(image_bytes),
      checksums_(checksums),
      pieces_(pieces),
      image_(PieceIdentity(key, 0, image_bytes)),
      piece_(PieceIdentity(key, 0, 0)) {
  if (!pieces_.empty()) piece_.Reset(PieceIdentity(key, pieces_[0].offset, pieces_[0].length));
}

Status ImageVerifier::EndPiece() {
  if (piece_.Finish() != checksums_.pieces[next_piece_]) {
    return Error(ErrorCode::kDataLoss,
                 "extent " + KeyText(key_) + ": piece " + std::to_string(next_piece_) + " (" +
                     std::to_string(pieces_[next_piece_].length) + " bytes at " +
                     std::to_string(pieces_[next_piece_].offset) +
                     ") does not match its checksum");
  }
  // The checksum of a piece covers its place, so it must be known before the first byte is summed.
  if (++next_piece_ < pieces_.size()) {
    piece_.Reset(
        PieceIdentity(key_, pieces_[next_piece_].offset, pieces_[next_piece_].length));
  }
  return {};
}

Status ImageVerifier::Feed(std::span<const std::byte> part) {
  // The image's checksum runs over all bytes, also those between pieces.
  image_.Update(part);
  const std::uint64_t part_end = offset_ + part.size();
  while (next_piece_ < pieces_.size()) {
    const catalog::Range& piece = pieces_[next_piece_];
    const std::uint64_t piece_end = piece.offset + piece.length;
    const std::uint64_t begin = std::max<std::uint64_t>(piece.offset, offset_);
    const std::uint64_t end = std::min(piece_end, part_end);
    // Bytes between two pieces belong to none, and an empty piece has none of its own.
    if (begin < end) piece_.Update(part.subspan(begin - offset_, end - begin));
    // The rest of this piece is in the next part; its running checksum waits for it.
    if (piece_end > part_end) break;
    FOREBAY_TRY(EndPiece());
  }
  offset_ = part_end;
  return {};
}

Status ImageVerifier::Finish() {
  // A shorter or longer image is wrong too, even if all bytes that were seen are right.
  if (offset_ != image_bytes_ || image_.Finish() != checksums_.image) {
    return Error(ErrorCode::kDataLoss,
                 "extent " + KeyText(key_) + ": its image does not match its checksum");
  }
  return {};
}

}  // namespace forebay::tier
