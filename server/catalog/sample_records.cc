// A record is: u16 length of the key, the key, u8 number of fields, then for each field u8 number,
// u32 offset and u32 length. Append writes records into a spool; Reader turns consecutive records
// into the sample page and the key page of an extent. CatalogPart and PartMerger are the callers.
#include "server/catalog/sample_records.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "server/catalog/storage/catalog_format.h"
#include "server/catalog/storage/catalog_writer.h"

namespace forebay::catalog {
namespace {

constexpr std::uint64_t kCopyBytes = 1 * limits::kMiB;  // that ForEachPiece holds in memory

}  // namespace

std::uint64_t KeyHash(std::string_view key) {
  return Checksum(std::as_bytes(std::span(key.data(), key.size())));
}

// The narrow casts are safe: formats bound the length of a key, the number of fields and the size
// of a sample before they append.
Result<std::uint64_t> SampleRecords::Append(const SampleRecord& record,
                                            std::uint64_t extent_start) {
  const std::uint64_t place = spool_.size();
  const auto key_bytes = static_cast<std::uint16_t>(record.key.size());
  const std::span<const std::byte> head = RowBytes(key_bytes);
  // row_ is a member, so that its memory is reused for every record.
  row_.assign(head.begin(), head.end());
  const auto key = std::as_bytes(std::span(record.key.data(), record.key.size()));
  row_.insert(row_.end(), key.begin(), key.end());
  AppendLe(row_, static_cast<std::uint8_t>(record.fields.size()));
  for (const SampleField& field : record.fields) {
    AppendLe(row_, field.field);
    AppendLe(row_, static_cast<std::uint32_t>(field.offset - extent_start));
    AppendLe(row_, static_cast<std::uint32_t>(field.length));
  }
  FOREBAY_TRY(spool_.Append(row_));
  return place;
}

Result<RecordRange> SampleRecords::AppendAll(const SampleRecords& others) {
  RecordRange range{.begin = spool_.size(), .end = spool_.size() + others.spool_.size()};
  FOREBAY_TRY(others.spool_.ForEachPiece(
      [this](std::span<const std::byte> piece) { return spool_.Append(piece); }));
  return range;
}

Status SampleRecords::ForEachPiece(
    const RecordRange& range,
    const std::function<Status(std::span<const std::byte>)>& visit) const {
  std::vector<std::byte> piece;
  for (std::uint64_t at = range.begin; at < range.end; at += piece.size()) {
    piece.resize(static_cast<std::size_t>(
        std::min<std::uint64_t>(kCopyBytes, range.end - at)));
    FOREBAY_TRY(spool_.Read(at, piece));
    FOREBAY_TRY(visit(piece));
  }
  return {};
}

Status SampleRecords::AppendChecked(SpoolReader& reader, const Bounds& bounds) {
  row_.clear();
  // Every piece of the row is bounded by its own type, so a forged record costs at most some 64 KiB
  // before the end of the bytes is noticed.
  const auto take = [&](std::size_t count) -> Result<std::span<const std::byte>> {
    FOREBAY_ASSIGN(const std::span<const std::byte> taken, reader.Take(count));
    row_.insert(row_.end(), taken.begin(), taken.end());
    return taken;
  };
  FOREBAY_ASSIGN(const std::span<const std::byte> key_bytes, take(sizeof(std::uint16_t)));
  FOREBAY_TRY(take(LoadAt<std::uint16_t>(key_bytes, 0)));
  FOREBAY_ASSIGN(const std::span<const std::byte> field_count, take(1));
  const auto fields = std::to_integer<std::size_t>(field_count.front());
  bool is_good = fields > 0 && fields <= bounds.field_count;
  std::array<bool, limits::kFieldCountMax> is_known = {};
  for (std::size_t i = 0; i < fields && is_good; ++i) {
    FOREBAY_ASSIGN(const std::span<const std::byte> field, take(1 + kMemberFieldBytes));
    const auto number = std::to_integer<std::size_t>(field.front());
    const auto offset = LoadAt<std::uint32_t>(field, 1);
    const auto length = LoadAt<std::uint32_t>(field, 1 + sizeof(offset));
    is_good = number < bounds.field_count && !std::exchange(is_known[number], true) &&
              offset <= bounds.bytes && length <= bounds.bytes - offset;
  }
  if (is_good) return spool_.Append(row_);
  return Error(ErrorCode::kDataLoss, "a sample has impossible fields");
}

Result<std::string> SampleRecords::KeyAt(std::uint64_t place) const {
  std::uint16_t length = 0;
  FOREBAY_TRY(spool_.Read(place, std::as_writable_bytes(std::span(&length, 1))));
  std::string key(length, '\0');
  FOREBAY_TRY(spool_.Read(place + sizeof(length),
                          std::as_writable_bytes(std::span(key.data(), key.size()))));
  return key;
}

template <typename T>
Result<T> SampleRecords::Reader::TakeLe() {
  FOREBAY_ASSIGN(const std::span<const std::byte> bytes, reader_.Take(sizeof(T)));
  return LoadAt<T>(bytes, 0);
}

Result<SamplePages> SampleRecords::Reader::ReadPages(
    std::uint32_t sample_count, std::span<const std::size_t> final_numbers,
    std::size_t columns) {
  SamplePages pages;
  if (sample_count == 0) return pages;  // an extent that continues a sample
  const std::size_t entry_bytes = columns * kMemberFieldBytes;
  // The page starts as "absent" (all ones) for every field; then each field that a record has
  // overwrites its column.
  pages.entries.assign(sample_count * entry_bytes, std::byte{0xFF});
  std::vector<std::string> keys(sample_count);
  for (std::uint32_t i = 0; i < sample_count; ++i) {
    FOREBAY_ASSIGN(const auto key_bytes, TakeLe<std::uint16_t>());
    FOREBAY_ASSIGN(const std::span<const std::byte> key, reader_.Take(key_bytes));
    keys[i].assign(reinterpret_cast<const char*>(key.data()), key.size());
    FOREBAY_ASSIGN(const auto field_count, TakeLe<std::uint8_t>());
    for (std::uint8_t k = 0; k < field_count; ++k) {
      FOREBAY_ASSIGN(const auto number, TakeLe<std::uint8_t>());
      // Offset and length lie in the record exactly as in the page.
      FOREBAY_ASSIGN(const std::span<const std::byte> range, reader_.Take(kMemberFieldBytes));
      const std::size_t column = final_numbers[number];
      std::memcpy(&pages.entries[i * entry_bytes + column * kMemberFieldBytes], range.data(),
                  kMemberFieldBytes);
    }
  }
  pages.keys = EncodeKeyPage(keys);
  return pages;
}

}  // namespace forebay::catalog
