// Writing: each chunk is encoded, decoded again and compared (promise P1), then appended as a
// record of the pack format; its place goes to the directory. Reading: the directory is verified as
// a whole before any of its rows is used.
#include "server/stage/packed/packed_extent.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "compress/decode/chunk/chunk_decoder.h"
#include "proto/contract/align_up.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"

namespace forebay::stage {

using compress::ChunkCodec;
using compress::ChunkHead;
using compress::ChunkRange;
using compress::ChunkShape;
using compress::EncodedChunk;
using compress::StridedOutput;

namespace {

constexpr std::uint64_t kRecordAlignment = 8;

Error Damaged(const tier::ExtentKey& key, const std::string& what) {
  return Error(ErrorCode::kDataLoss, "packed extent " + tier::KeyText(key) + ": " + what);
}

// The checksum of what follows it in the directory. The key is part of it, so that the directory of
// another extent does not pass.
std::uint64_t DirectoryChecksum(const tier::ExtentKey& key, std::span<const std::byte> covered) {
  return Checksum(tier::PieceIdentity(key, 0, covered.size()), covered);
}

// Buffers for one chunk, which are reused for the next one.
struct ChunkMemory {
  std::vector<std::byte> decoded, scratch;
};

// The round-trip check: whether the chunk decodes to `raw`.
bool DecodesTo(const ChunkShape& shape, const EncodedChunk& encoded,
               std::span<const std::byte> raw, ChunkMemory& memory) {
  memory.decoded.resize(raw.size());
  memory.scratch.resize(compress::ChunkScratchBytes(shape));
  const ChunkRange whole = ChunkRange::Whole(shape);
  const Status decoded =
      compress::DecodeChunk(shape, encoded.codec, encoded.payload, whole,
                            StridedOutput::Dense(shape, whole, memory.decoded), memory.scratch);
  return decoded.has_value() && std::memcmp(memory.decoded.data(), raw.data(), raw.size()) == 0;
}

// Appends the record of one chunk to `packed`, and its row to `directory`.
Status PackChunkInto(const PackedForm& form, std::uint64_t identity, const PackedChunk& chunk,
                     std::span<const std::byte> raw, ChunkMemory& memory, ByteWriter& directory,
                     PackedExtent& packed) {
  const compress::PackField& field = form.schema().fields[chunk.field];
  const ChunkShape shape = field.Shape(chunk.tile, chunk.sample_count);
  Result<EncodedChunk> coded =
      compress::EncodeChunk(shape, raw, {.profile = form.profile(), .bound = {}});
  const bool is_refused =
      !coded.has_value() && coded.error().code() == ErrorCode::kInvalidArgument;
  // The encoder refuses a chunk whose bytes do not have the size of its shape, or a shape beyond
  // its limits. Then form and image contradict each other. Storing the bytes would not help,
  // because a reader takes the same shape and could not decode them.
  if (is_refused) return coded.error();
  // After any other failure of the encoder, and if the chunk fails the round-trip check, the chunk
  // is stored uncompressed: a bug in the encoder costs space, and no data.
  EncodedChunk encoded;
  if (coded.has_value() && DecodesTo(shape, *coded, raw, memory)) {
    encoded = std::move(*coded);
  } else {
    encoded = {.codec = ChunkCodec::kStore, .payload = {raw.begin(), raw.end()}};
    ++packed.escaped_chunks;
  }
  // Per sample, so that one sample can be verified without the others of its chunk.
  ByteWriter checksums;
  const std::size_t sample_bytes = raw.size() / chunk.sample_count;
  for (std::uint32_t i = 0; i < chunk.sample_count; ++i) {
    checksums.Le(compress::SampleChecksum(identity, chunk.field, chunk.tile,
                                          chunk.first_sample + i, 0,
                                          raw.subspan(i * sample_bytes, sample_bytes)));
  }
  const ChunkHead head{.field = chunk.field,
                       .tile = chunk.tile,
                       .first_sample = chunk.first_sample,
                       .sample_count = chunk.sample_count,
                       .codec = encoded.codec,
                       .begins_sequence = true,
                       .raw_bytes = raw.size(),
                       .checksums = checksums.bytes()};
  // Records lie one after another behind the directory, so the offset is the size so far. Images
  // are at most 64 MiB, so offsets fit in 32 bits.
  const std::uint64_t offset = packed.bytes;
  std::vector<std::byte> record =
      compress::WriteRecordHead(identity, offset, compress::RecordType::kChunk,
                                compress::WriteChunkHead(head), encoded.payload, false);
  FOREBAY_ASSIGN(const compress::RecordPrefix prefix, compress::ReadRecordPrefix(record));
  record.reserve(record.size() + encoded.payload.size() + kRecordAlignment);
  record.insert(record.end(), encoded.payload.begin(), encoded.payload.end());
  packed.pieces.push_back({.extent = packed.pieces.front().extent,
                           .offset = static_cast<std::uint32_t>(offset),
                           .length = record.size()});
  // The padding aligns the next record. It is not part of the piece, so no checksum covers it.
  record.resize(AlignUp(record.size(), kRecordAlignment));
  directory.Le(static_cast<std::uint32_t>(offset));
  directory.Le(prefix.head_bytes);
  directory.Le(static_cast<std::uint32_t>(prefix.payload_bytes));
  // Reserved: it aligns the checksum behind it to 8 bytes.
  directory.Le(std::uint32_t{0});
  directory.Le(prefix.head_checksum);
  packed.bytes += record.size();
  packed.records.push_back(std::move(record));
  return {};
}

}  // namespace

void PackedExtent::CopyTo(std::span<std::byte> image) const {
  FOREBAY_CHECK(image.size() == bytes);
  std::size_t at = 0;
  const auto append = [&](std::span<const std::byte> part) {
    std::memcpy(image.data() + at, part.data(), part.size());
    at += part.size();
  };
  append(directory);
  for (const std::vector<std::byte>& record : records) append(record);
}

Result<PackedExtent> PackExtent(const PackedForm& form, const tier::ExtentKey& key,
                                std::span<const std::byte> image, std::uint64_t raw_checksum,
                                const std::function<bool()>& is_cancelled) {
  if (image.size() != form.catalog().extent(key.extent).bytes) {
    return Error(ErrorCode::kInvalidArgument,
                 "extent " + tier::KeyText(key) + " has " +
                     std::to_string(form.catalog().extent(key.extent).bytes) +
                     " bytes, but its image has " + std::to_string(image.size()));
  }
  const std::uint32_t chunks = form.ChunkCount(key.extent);
  const std::uint64_t identity = PackedForm::IdentityOf(key);
  PackedExtent packed;
  packed.bytes = DirectoryBytes(chunks);
  packed.pieces.push_back({.extent = key.extent, .offset = 0, .length = packed.bytes});
  packed.records.reserve(chunks);
  ByteWriter covered;  // what the directory's checksum covers: the raw checksum, and the rows
  covered.Le(raw_checksum);
  ChunkMemory memory;
  for (std::uint32_t number = 0; number < chunks; ++number) {
    // Asked before each chunk, so that a shutdown waits for one chunk at most.
    if (is_cancelled && is_cancelled()) {
      return Error(ErrorCode::kCancelled, "the daemon is shutting down");
    }
    const PackedChunk chunk = form.ChunkOf(key.extent, number);
    FOREBAY_TRY(PackChunkInto(form, identity, chunk,
                              image.subspan(chunk.raw_offset, chunk.raw_bytes), memory, covered,
                              packed));
  }
  // Space was planned for this size; a larger image would take space that nobody has reserved.
  FOREBAY_CHECK(packed.bytes <= form.ImageBytesMax(key.extent));
  ByteWriter directory;
  // The head is written last, because it holds the checksum of all that follows.
  directory.Le(kPackedExtentMagic);
  directory.Le(kPackedExtentVersion);
  directory.Le(chunks);
  directory.Le(DirectoryChecksum(key, covered.bytes()));
  directory.Bytes(covered.bytes());
  packed.directory = directory.Release();
  return packed;
}

Result<PackedDirectory> PackedDirectory::Open(const PackedForm& form,
                                              const tier::ExtentKey& key,
                                              std::uint64_t image_bytes,
                                              std::span<const std::byte> bytes) {
  const std::uint32_t chunks = form.ChunkCount(key.extent);
  // The number of chunks follows from the catalog, so the size of the directory is known in
  // advance.
  if (bytes.size() != DirectoryBytes(chunks) || image_bytes < bytes.size()) {
    return Damaged(key, "its image is too short for its directory");
  }
  ByteReader reader(bytes);
  if (reader.ReadLe<std::uint64_t>() != kPackedExtentMagic ||
      reader.ReadLe<std::uint32_t>() != kPackedExtentVersion ||
      reader.ReadLe<std::uint32_t>() != chunks) {
    return Damaged(key, "its directory has another magic, version or number of chunks");
  }
  const auto checksum = reader.ReadLe<std::uint64_t>();
  constexpr std::uint64_t kCoveredFrom = kDirectoryHeadBytes - sizeof(std::uint64_t);
  if (DirectoryChecksum(key, bytes.subspan(kCoveredFrom)) != checksum) {
    return Damaged(key, "its directory does not match its checksum");
  }
  const auto raw_checksum = reader.ReadLe<std::uint64_t>();
  return PackedDirectory(form, key, image_bytes, raw_checksum, bytes.subspan(kDirectoryHeadBytes));
}

Result<PackedDirectory> PackedDirectory::OpenIn(const PackedForm& form,
                                                const tier::ExtentKey& key,
                                                std::span<const std::byte> image) {
  const std::uint64_t directory_bytes = DirectoryBytes(form.ChunkCount(key.extent));
  if (image.size() < directory_bytes) {
    return Damaged(key, "its image is too short for its directory");
  }
  return Open(form, key, image.size(), image.first(directory_bytes));
}

Result<catalog::PackChunk> PackedDirectory::ChunkAt(std::uint32_t number) const {
  const PackedChunk place = form_->ChunkOf(key_.extent, number);
  ByteReader row(rows_.subspan(number * kDirectoryRowBytes, kDirectoryRowBytes));
  catalog::PackChunk chunk;
  chunk.entry = {.field = place.field,
                 .tile = place.tile,
                 .first_sample = place.first_sample,
                 .sample_count = place.sample_count};
  chunk.entry.offset = row.ReadLe<std::uint32_t>();
  chunk.entry.head_bytes = row.ReadLe<std::uint32_t>();
  chunk.entry.payload_bytes = row.ReadLe<std::uint32_t>();
  static_cast<void>(row.ReadLe<std::uint32_t>());
  chunk.entry.head_checksum = row.ReadLe<std::uint64_t>();
  // The row passed a checksum, but a wrong writer may have computed it: bounds are checked too.
  // Sizes are compared with what is left, because a sum of them could overflow.
  const std::uint64_t left = image_bytes_ - std::min(image_bytes_, chunk.entry.offset);
  if (chunk.entry.offset < kDirectoryHeadBytes + rows_.size() ||
      chunk.entry.head_bytes > left || chunk.entry.payload_bytes > left - chunk.entry.head_bytes) {
    return Damaged(key_, "chunk " + std::to_string(number) + " would lie outside its image");
  }
  chunk.identity = PackedForm::IdentityOf(key_);
  chunk.sample_base = form_->catalog().extent(key_.extent).first_sample.value();
  chunk.extent = key_.extent;
  // Piece 0 is the directory.
  chunk.piece = number + 1;
  chunk.image_offset = static_cast<std::uint32_t>(chunk.entry.offset);
  return chunk;
}

Result<std::vector<catalog::Range>> PackedPieces(const PackedForm& form, const tier::ExtentKey& key,
                                                 std::span<const std::byte> image) {
  FOREBAY_ASSIGN(const PackedDirectory directory, PackedDirectory::OpenIn(form, key, image));
  const std::uint32_t chunks = form.ChunkCount(key.extent);
  std::vector<catalog::Range> pieces = {
      {.extent = key.extent, .offset = 0, .length = DirectoryBytes(chunks)}};
  for (std::uint32_t number = 0; number < chunks; ++number) {
    FOREBAY_ASSIGN(const catalog::PackChunk chunk, directory.ChunkAt(number));
    pieces.push_back(
        {.extent = key.extent, .offset = chunk.image_offset, .length = chunk.bytes()});
  }
  return pieces;
}

}  // namespace forebay::stage
