// Edits a pack for tests of broken files: changes one thing and then puts the checksums right, so
// that a reader meets exactly that fault.
#include "compress/golden/pack_editor.h"

#include <algorithm>
#include <span>
#include <utility>

#include "compress/decode/pack/pack_file.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

// Keeps a record as its type, what the type adds and its payload. The head is not kept: Append
// writes a new one for the record's new place. Called for each entry of the index.
template <typename Entry>
PackEditor::Record Cut(std::span<const std::byte> bytes, std::uint64_t identity,
                       RecordType type, const Entry& entry, std::size_t number) {
  const auto record = bytes.subspan(static_cast<std::size_t>(entry.offset));
  const auto added = CheckRecordHead(identity, entry.offset, record);
  FOREBAY_CHECK(added.has_value());
  const auto payload =
      record.subspan(entry.head_bytes, static_cast<std::size_t>(entry.payload_bytes));
  return {.type = type, .added = {added->begin(), added->end()},
          .payload = {payload.begin(), payload.end()}, .entry = number};
}

// Writes the head and payload at the end of `file` and what the index says of them.
template <typename Entry>
void Append(std::uint64_t identity, const PackEditor::Record& record, Entry& entry,
            std::vector<std::byte>& file) {
  const auto head = WriteRecordHead(identity, file.size(), record.type, record.added,
                                    record.payload, false);
  const auto prefix = ReadRecordPrefix(head);
  FOREBAY_CHECK(prefix.has_value());
  entry.offset = file.size();
  entry.head_bytes = prefix->head_bytes;
  entry.payload_bytes = record.payload.size();
  entry.head_checksum = prefix->head_checksum;
  file.insert(file.end(), head.begin(), head.end());
  file.insert(file.end(), record.payload.begin(), record.payload.end());
  // Records begin at multiples of 8 bytes.
  file.resize((file.size() + 7) / 8 * 8);
}

}  // namespace

PackEditor::PackEditor(const std::vector<std::byte>& bytes) {
  const auto source = MemorySource(bytes);
  const auto pack = PackFile::Open(*source);
  // Append does not align payloads, so it could not put an aligned pack together again.
  FOREBAY_CHECK(pack.has_value() && !pack->schema().aligned);
  const auto start = PackStartBytes(bytes);
  start_.assign(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(*start));
  index_ = pack->index();
  // Kept apart from the index, so that a test can make the two disagree.
  footer_samples_ = index_.samples;
  // In the file's order; records of other types are lost.
  std::vector<std::pair<std::uint64_t, Record>> placed;
  for (std::size_t i = 0; i < index_.chunks.size(); ++i) {
    placed.emplace_back(index_.chunks[i].offset,
                        Cut(bytes, pack->identity(), RecordType::kChunk, index_.chunks[i], i));
  }
  for (std::size_t i = 0; i < index_.keys.size(); ++i) {
    placed.emplace_back(index_.keys[i].offset,
                        Cut(bytes, pack->identity(), RecordType::kKeys, index_.keys[i], i));
  }
  std::ranges::sort(placed, {}, [](const auto& entry) { return entry.first; });
  for (auto& entry : placed) records_.push_back(std::move(entry.second));
}

PackEditor::Record& PackEditor::Chunk(std::size_t entry) {
  const auto found = std::ranges::find_if(records_, [&](const Record& record) {
    return record.type == RecordType::kChunk && record.entry == entry;
  });
  FOREBAY_CHECK(found != records_.end());
  return *found;
}

void PackEditor::InsertUnknownRecord(std::size_t before) {
  Record record{.type = static_cast<RecordType>(77), .added = {}, .payload = {}};
  record.added.assign(3, std::byte{1});
  record.payload.assign(5, std::byte{2});
  records_.insert(records_.begin() + static_cast<std::ptrdiff_t>(before), std::move(record));
}

void PackEditor::Patch(std::size_t entry, std::size_t at, std::size_t width,
                       std::uint64_t value) {
  Record& record = Chunk(entry);
  FOREBAY_CHECK(at + width <= record.added.size());
  for (std::size_t i = 0; i < width; ++i) {
    record.added[at + i] = static_cast<std::byte>(value >> (8 * i) & 0xFF);
  }
}

std::vector<std::byte> PackEditor::Bytes() {
  // The start is never edited, so the pack keeps its identity and every checksum that depends on
  // it.
  const std::uint64_t identity = PackIdentity(start_);
  std::vector<std::byte> file = start_;
  KeyEntry unused;
  for (const Record& record : records_) {
    // A test may have removed the entry from the index; the record is then written, but nothing
    // points to it.
    if (record.type == RecordType::kChunk && record.entry < index_.chunks.size()) {
      Append(identity, record, index_.chunks[record.entry], file);
    } else if (record.type == RecordType::kKeys) {
      Append(identity, record, index_.keys[record.entry], file);
    } else {
      Append(identity, record, unused, file);
    }
  }
  // After all records have their places and before the index is written: only the index is wrong.
  if (!index_.chunks.empty()) index_.chunks[0].offset += misplaced_by_;
  const std::size_t index_offset = file.size();
  const Record index{.type = RecordType::kIndex, .added = {}, .payload = WritePackIndex(index_)};
  Append(identity, index, unused, file);
  const auto footer = WritePackFooter(identity, {.index_offset = index_offset,
                                                 .index_bytes = file.size() - index_offset,
                                                 .samples = footer_samples_});
  file.insert(file.end(), footer.begin(), footer.end());
  return file;
}

}  // namespace forebay::compress
