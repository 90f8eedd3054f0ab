#include "server/catalog/sample_records.h"

#include <cstring>

#include "proto/contract/checksum.h"
#include "server/catalog/catalog_writer.h"

namespace forebay::catalog {
namespace {

template <typename T>
void AppendLe(std::vector<std::byte>& bytes, T value) {
  const auto raw = std::as_bytes(std::span(&value, 1));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

}  // namespace

std::uint64_t KeyHash(std::string_view key) {
  return Checksum(std::as_bytes(std::span(key.data(), key.size())));
}

std::uint64_t SampleRecords::Append(const SampleRecord& record, std::uint64_t extent_start) {
  const std::uint64_t place = bytes_.size();
  AppendLe(bytes_, static_cast<std::uint16_t>(record.key.size()));
  const auto key = std::as_bytes(std::span(record.key.data(), record.key.size()));
  bytes_.insert(bytes_.end(), key.begin(), key.end());
  AppendLe(bytes_, static_cast<std::uint8_t>(record.fields.size()));
  for (const SampleField& field : record.fields) {
    AppendLe(bytes_, field.field);
    AppendLe(bytes_, static_cast<std::uint32_t>(field.offset - extent_start));
    AppendLe(bytes_, static_cast<std::uint32_t>(field.length));
  }
  return place;
}

std::string_view SampleRecords::KeyAt(std::uint64_t place) const {
  const std::span<const std::byte> bytes(bytes_);
  const auto length = LoadAt<std::uint16_t>(bytes, place);
  const auto key = bytes.subspan(place + sizeof(length), length);
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

SamplePages SampleRecords::Reader::ReadPages(std::uint32_t sample_count,
                                             std::span<const std::size_t> final_numbers) {
  SamplePages pages;
  if (sample_count == 0) return pages;  // an extent that continues a sample
  const std::span<const std::byte> bytes(records_.bytes_);
  const std::size_t entry_bytes = final_numbers.size() * kMemberFieldBytes;
  // All ones is "absent" for every field.
  pages.entries.assign(sample_count * entry_bytes, std::byte{0xFF});
  std::vector<std::string> keys(sample_count);
  for (std::uint32_t i = 0; i < sample_count; ++i) {
    keys[i] = std::string(records_.KeyAt(at_));
    at_ += sizeof(std::uint16_t) + keys[i].size();
    const auto field_count = LoadAt<std::uint8_t>(bytes, at_++);
    for (std::uint8_t k = 0; k < field_count; ++k) {
      const std::size_t column = final_numbers[LoadAt<std::uint8_t>(bytes, at_++)];
      std::memcpy(&pages.entries[i * entry_bytes + column * kMemberFieldBytes], &bytes[at_],
                  kMemberFieldBytes);
      at_ += kMemberFieldBytes;
    }
  }
  pages.keys = EncodeKeyPage(keys);
  return pages;
}

}  // namespace forebay::catalog
