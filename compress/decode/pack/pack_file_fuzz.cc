// Fuzz target: a whole pack file. Whatever it says: it opens or not, with its index and by a walk
// over its records, and all that is asked of an open one is answered or refused within the
// scratch memory that it named.
//
// Checksums would hide what lies behind them, so each input is read twice: as it is, and with
// those put right that lie where its own sizes say.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "compress/decode/pack/pack_file.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"

namespace forebay::compress {
namespace {

constexpr std::uint64_t kBytesRead = 1 << 20;  // of a sample at most, to bound the work
constexpr std::uint64_t kSamplesRead = 12;

void PutWord(std::vector<std::byte>& bytes, std::size_t at, std::uint64_t value) {
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[at + i] = static_cast<std::byte>(value >> (8 * i) & 0xFF);
  }
}

std::uint64_t Word(std::span<const std::byte> bytes, std::size_t at) {
  return ByteReader(bytes.subspan(at)).ReadLe<std::uint64_t>();
}

// Puts right a record's two checksums; its size, or 0 where there is no whole record.
std::size_t FixRecord(std::vector<std::byte>& bytes, std::size_t at, std::uint64_t identity) {
  if (at > bytes.size() || bytes.size() - at < kRecordPrefixBytes) return 0;
  const auto prefix = ReadRecordPrefix(std::span(bytes).subspan(at));
  const std::size_t left = bytes.size() - at;
  if (!prefix.has_value() || prefix->head_bytes > left ||
      prefix->payload_bytes > left - prefix->head_bytes) {
    return 0;
  }
  const auto size = prefix->head_bytes + static_cast<std::size_t>(prefix->payload_bytes);
  const auto payload = std::span(bytes).subspan(at + prefix->head_bytes,
                                                static_cast<std::size_t>(prefix->payload_bytes));
  // The payload's checksum first, because the head's covers it. Offsets are those of docs/pack.md.
  PutWord(bytes, at + 32, PayloadChecksum(identity, prefix->type, at, payload));
  const auto added =
      ByteReader(std::span<const std::byte>(bytes).subspan(at + 20)).ReadLe<std::uint32_t>();
  const auto covered = std::span<const std::byte>(bytes).subspan(
      at + kRecordCoveredOffset, kRecordPrefixBytes - kRecordCoveredOffset + added);
  PutWord(bytes, at + 8,
          Checksum({.dataset = identity, .object = static_cast<std::uint64_t>(prefix->type),
                    .offset = at, .length = covered.size()},
                   covered));
  return size;
}

// Puts right what names the records: the index's copies of their checksums.
void FixIndex(std::vector<std::byte>& bytes, std::size_t at, std::uint64_t identity) {
  if (FixRecord(bytes, at, identity) == 0) return;
  const auto prefix = ReadRecordPrefix(std::span(bytes).subspan(at));
  std::size_t entry = at + prefix->head_bytes;
  // Too short for the three numbers with which an index begins.
  if (prefix->payload_bytes < 24) return;
  const std::size_t end = entry + static_cast<std::size_t>(prefix->payload_bytes);
  std::uint64_t chunks = Word(bytes, entry + 8), keys = Word(bytes, entry + 16);
  // The numbers of entries are the fuzzer's. The loop ends at the payload's end at the latest.
  for (entry += 24; chunks + keys > 0; chunks > 0 ? --chunks : --keys) {
    const std::size_t size = chunks > 0 ? 64 : 40;
    if (end - entry < size) return;
    const std::uint64_t offset = Word(bytes, entry + (chunks > 0 ? 24 : 16));
    if (offset <= bytes.size() - 16) {
      // The last word of an entry repeats the checksum of the record's head, 8 bytes behind its
      // beginning.
      PutWord(bytes, entry + size - 8, Word(bytes, static_cast<std::size_t>(offset) + 8));
    }
    entry += size;
  }
  FixRecord(bytes, at, identity);
}

std::vector<std::byte> Fixed(std::span<const std::byte> input) {
  std::vector<std::byte> bytes(input.begin(), input.end());
  if (bytes.size() < kPackHeaderBytes + kFooterBytes) return bytes;
  const std::size_t at = bytes[8] == std::byte{kPackMajorOldest} ? 32 : 24;  // of its size
  const std::uint64_t schema = Word(bytes, at);
  if (schema > bytes.size() - kPackHeaderBytes) return bytes;
  const auto start = kPackHeaderBytes + static_cast<std::size_t>(schema);
  PutWord(bytes, at + 8, Checksum(std::span(bytes).subspan(kPackHeaderBytes, start - 64)));
  PutWord(bytes, 56, Checksum(std::span(bytes).first(56)));
  const std::uint64_t identity = PackIdentity(bytes);
  const std::size_t footer = bytes.size() - kFooterBytes;
  // Records first and the index after them, because the index repeats their checksums.
  for (std::size_t record = start; record < footer;) {
    const std::size_t size = FixRecord(bytes, record, identity);
    if (size == 0) break;
    record += (size + 7) / 8 * 8;
  }
  const std::uint64_t index = Word(bytes, footer + 8);
  if (index >= start && index < footer) {
    FixIndex(bytes, static_cast<std::size_t>(index), identity);
  }
  PutWord(bytes, footer, identity);
  PutWord(bytes, footer + 48, Checksum(std::span(bytes).subspan(footer, 48)));
  PutWord(bytes, footer + 56, kFooterMagic);
  return bytes;
}

void ReadAll(const PackFile& pack, std::vector<std::byte>& scratch) {
  if (scratch.size() < pack.ScratchBytes()) scratch.resize(pack.ScratchBytes());
  // Exactly what it named, so that a byte beyond is found.
  const auto named = std::span(scratch).last(pack.ScratchBytes());
  const std::uint64_t samples = std::min(pack.samples(), kSamplesRead);
  const auto keys = pack.Keys(0, samples);
  if (keys.has_value() && keys->size() != samples) __builtin_trap();
  std::vector<std::byte> value;
  for (std::uint32_t field = 0; field < pack.schema().fields.size(); ++field) {
    const bool variable = pack.schema().fields[field].variable();
    for (std::uint64_t sample = 0; sample < samples; ++sample) {
      const auto bytes = pack.SampleBytes(field, sample, named);
      if (!bytes.has_value() || *bytes > kBytesRead) continue;
      value.resize(static_cast<std::size_t>(*bytes));
      // The length came from the pack itself, so it must be accepted; damage is the only excuse.
      const Status read = variable ? pack.ReadBytes(field, sample, value, named)
                                   : pack.ReadSamples(field, sample, 1, value, named);
      if (!read.has_value() && (read.error().code() == ErrorCode::kInvalidArgument ||
                                read.error().code() == ErrorCode::kOutOfRange)) {
        __builtin_trap();  // the caller asked for nothing that there is not
      }
    }
  }
  for (const ChunkEntry& entry : pack.index().chunks) {
    if (entry.first_sample < kSamplesRead) static_cast<void>(pack.DecodeWhole(entry, named));
  }
}

void Check(std::span<const std::byte> input) {
  static std::vector<std::byte> scratch;  // nothing reads what another input left there
  const auto source = MemorySource(input);
  const auto opened = PackFile::Open(*source);
  if (opened.has_value()) ReadAll(*opened, scratch);
  const auto recovered = PackFile::Recover(*source);
  if (recovered.has_value()) ReadAll(*recovered, scratch);
}

}  // namespace
}  // namespace forebay::compress

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  forebay::compress::Check(input);
  forebay::compress::Check(forebay::compress::Fixed(input));
  return 0;
}
