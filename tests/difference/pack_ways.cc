#include "tests/difference/pack_ways.h"

#include <algorithm>
#include <utility>

#include "compress/decode/pack/pack_file.h"
#include "compress/encode/testing/pack_test_model.h"
#include "compress/golden/pack_editor.h"
#include "proto/contract/check.h"
#include "tests/difference/read_ways.h"
#include "tests/difference/sample_box.h"

namespace forebay::compress {
namespace {

using Bytes = std::vector<std::byte>;

// Where a chunk's record says what, in what its type adds (docs/pack.md).
constexpr std::size_t kAtCodec = 20, kAtChecksums = 48;

struct Outcome {
  std::optional<ErrorCode> error;
  Bytes bytes;
};

Outcome OutcomeOf(const Result<Bytes>& read) {
  if (!read.has_value()) return {.error = read.error().code(), .bytes = {}};
  return {.error = std::nullopt, .bytes = *read};
}

// A sound pack, one of whose chunks has been damaged.
class DamagedPack {
 public:
  DamagedPack(const Bytes& good, const std::vector<Specimen>& others, std::mt19937& random)
      : random_(random), good_source_(MemorySource(good)), good_(Open(*good_source_)) {
    const auto& chunks = good_.index().chunks;
    do {
      number_ = Below(static_cast<std::uint32_t>(chunks.size()));
    } while (chunks[number_].payload_bytes == 0);
    scratch_.resize(good_.ScratchBytes());
    Damage(good, others);
    bad_source_ = MemorySource(bytes_);
    bad_.emplace(Open(*bad_source_));
    scratch_.resize(std::max(scratch_.size(), bad_->ScratchBytes()));
  }

  PackOutcome Compare() {
    ReadAlone();
    PackOutcome outcome;
    for (const Outcome& one : alone_) {
      if (!outcome.error.has_value()) outcome.error = one.error;
    }
    if (IsSameElsewhere() && IsWhole()) {
      static_cast<void>(field().variable() || (AreRuns() && IsRegion()));
    }
    if (!difference_.empty()) outcome.difference = difference_;
    return outcome;
  }

 private:
  static PackFile Open(const ByteSource& source) {
    auto pack = PackFile::Open(source);
    FOREBAY_CHECK(pack.has_value());
    return std::move(*pack);
  }
  std::uint32_t Below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_() % limit); }
  const ChunkEntry& entry() const { return good_.index().chunks[number_]; }
  const PackField& field() const { return good_.schema().fields[entry().field]; }

  void Damage(const Bytes& good, const std::vector<Specimen>& others) {
    const auto loaded = good_.Load(entry(), scratch_);
    FOREBAY_CHECK(loaded.has_value());
    const ChunkHead& head = loaded->record.head;
    Specimen specimen;
    specimen.shape = field().variable() ? BytesShape(head.raw_bytes)
                                        : field().Shape(entry().tile, entry().sample_count);
    specimen.codec = head.codec;
    specimen.payload.assign(loaded->record.payload.begin(), loaded->record.payload.end());
    specimen = Mutate(specimen, others, random_);
    PackEditor editor(good);
    editor.Chunk(number_).payload = specimen.payload;
    editor.Patch(number_, kAtCodec, 1, static_cast<std::uint64_t>(specimen.codec));
    Reseal(specimen, head, editor);
    bytes_ = editor.Bytes();
  }

  // Samples that decode have the checksums of what they decode to.
  void Reseal(const Specimen& specimen, const ChunkHead& head, PackEditor& editor) {
    Bytes scratch(ChunkScratchBytes(specimen.shape)), strings;
    std::size_t at = 0;
    if (field().variable()) strings = Decode(specimen, 0, scratch);
    for (std::uint32_t i = 0; i < entry().sample_count; ++i) {
      Bytes sample;
      if (!field().variable()) {
        sample = Decode(specimen, i, scratch);
      } else if (!strings.empty()) {
        const auto begin = strings.begin() + static_cast<std::ptrdiff_t>(at);
        sample.assign(begin, begin + static_cast<std::ptrdiff_t>(head.LengthOf(i)));
        at += head.LengthOf(i);
      }
      editor.Patch(number_, kAtChecksums + std::size_t{8} * i, 8,
                   SampleChecksum(good_.identity(), entry().field, entry().tile,
                                  entry().first_sample + i, entry().part_offset, sample));
    }
  }

  // Of a sample; nothing where it is damaged.
  static Bytes Decode(const Specimen& specimen, std::uint32_t sample, Bytes& scratch) {
    const ChunkRange range = ChunkRange::Samples(specimen.shape, sample, 1);
    Bytes bytes(specimen.shape.sample_bytes());
    const auto out = StridedOutput::Dense(specimen.shape, range, bytes);
    const bool decodes = DecodeChunk(specimen.shape, specimen.codec, specimen.payload, range, out,
                                     scratch)
                             .has_value();
    return decodes ? bytes : Bytes();
  }

  void ReadAlone() {
    for (std::uint32_t i = 0; i < entry().sample_count; ++i) {
      alone_.push_back(
          OutcomeOf(ReadField(*bad_, entry().field, entry().first_sample + i, scratch_)));
    }
  }

  bool Differs(std::string what) {
    if (difference_.empty()) difference_ = std::move(what);
    return false;
  }

  // Samples of the pack, outside the damaged chunk as they were.
  const Outcome& Alone(std::uint64_t sample) {
    if (sample >= entry().first_sample && sample < entry().first_sample + entry().sample_count) {
      return alone_[static_cast<std::size_t>(sample - entry().first_sample)];
    }
    elsewhere_ = OutcomeOf(ReadField(good_, entry().field, sample, scratch_));
    return elsewhere_;
  }

  // Whether reading samples together gave what they are alone, or the error of one of them.
  bool IsExplained(std::uint64_t first, std::uint64_t count, const Outcome& found,
                   const std::string& way) {
    Bytes expected;
    bool may_fail = false, is_code = false;
    for (std::uint64_t sample = first; sample < first + count; ++sample) {
      const Outcome& alone = Alone(sample);
      may_fail = may_fail || alone.error.has_value();
      is_code = is_code || (alone.error.has_value() && alone.error == found.error);
      expected.insert(expected.end(), alone.bytes.begin(), alone.bytes.end());
    }
    if (may_fail ? is_code : !found.error.has_value() && found.bytes == expected) return true;
    return Differs(way + " of " + std::to_string(count) + " samples from " +
                   std::to_string(first) + " on: " + NameOf(found.error) +
                   (may_fail ? ", alone some fail otherwise" : ", alone all are read"));
  }

  bool IsSameElsewhere() {
    for (std::uint32_t other = 0; other < good_.schema().fields.size(); ++other) {
      const std::uint64_t sample =
          Below(static_cast<std::uint32_t>(good_.samples()));
      const bool is_damaged = other == entry().field && sample >= entry().first_sample &&
                              sample < entry().first_sample + entry().sample_count;
      if (is_damaged) continue;
      const Outcome before = OutcomeOf(ReadField(good_, other, sample, scratch_));
      const Outcome after = OutcomeOf(ReadField(*bad_, other, sample, scratch_));
      if (before.error != after.error || before.bytes != after.bytes) {
        return Differs("sample " + std::to_string(sample) + " of field " + std::to_string(other) +
                       ", which is not damaged, reads otherwise");
      }
    }
    return true;
  }

  bool IsWhole() {
    const auto whole = bad_->DecodeWhole(bad_->index().chunks[number_], scratch_);
    Outcome found;
    if (!whole.has_value()) found.error = whole.error().code();
    if (whole.has_value() && !field().variable()) {
      Bytes samples;
      for (const Outcome& one : alone_) {
        samples.insert(samples.end(), one.bytes.begin(), one.bytes.end());
      }
      const bool is_complete = samples.size() == alone_.size() * field().sample_bytes();
      ChunkShape shape = field().Shape(entry().tile, entry().sample_count);
      ChunkRange box = ChunkRange::Whole(shape);
      box.origin = field().TileOrigin(entry().tile);
      shape.extent = field().extent;
      if (is_complete && !std::ranges::equal(whole->bytes, CutBox(shape, box, samples))) {
        return Differs("a whole chunk: other elements than the samples have");
      }
      found.bytes = std::move(samples);
    } else if (whole.has_value()) {
      found.bytes.assign(whole->bytes.begin(), whole->bytes.end());
    }
    return IsExplained(entry().first_sample, entry().sample_count, found, "a whole chunk");
  }

  Outcome ReadRun(std::uint64_t first, std::uint64_t count) {
    Bytes bytes(static_cast<std::size_t>(count * field().sample_bytes()));
    const Status status = bad_->ReadSamples(entry().field, first, count, bytes, scratch_);
    if (!status.has_value()) return {.error = status.error().code(), .bytes = {}};
    return {.error = std::nullopt, .bytes = std::move(bytes)};
  }

  bool AreRuns() {
    const std::uint64_t first = Below(static_cast<std::uint32_t>(good_.samples()));
    const std::uint64_t count = 1 + Below(static_cast<std::uint32_t>(good_.samples() - first));
    return IsExplained(entry().first_sample, entry().sample_count,
                       ReadRun(entry().first_sample, entry().sample_count), "a run") &&
           IsExplained(first, count, ReadRun(first, count), "a run");
  }

  // A box of a run of samples; without an element of the damaged tile it reads as before.
  bool IsRegion() {
    const std::uint64_t first = Below(static_cast<std::uint32_t>(good_.samples()));
    const std::uint64_t count = 1 + Below(static_cast<std::uint32_t>(good_.samples() - first));
    PackRegion region;
    ChunkShape shape = field().Shape(0, static_cast<std::uint32_t>(count));
    shape.extent = field().extent;
    ChunkRange box = ChunkRange::Whole(shape);
    for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
      box.origin[axis] = region.origin[axis] = Below(field().extent[axis]);
      box.extent[axis] = region.extent[axis] =
          1 + Below(field().extent[axis] - region.origin[axis]);
    }
    Bytes found(count * DtypeBytes(field().dtype) * region.extent[0] * region.extent[1] *
                region.extent[2] * region.extent[3]);
    const StridedOutput out = StridedOutput::Dense(shape, box, found);
    const Status status =
        bad_->Read(entry().field, first, count, region, out, scratch_);
    const bool touches =
        Intersects(good_.schema(),
                   {.first_sample = first, .count = count, .region = region, .out = {}}, entry());
    Bytes samples;
    for (std::uint64_t sample = first; sample < first + count; ++sample) {
      const Outcome alone =
          touches ? Alone(sample) : OutcomeOf(ReadField(good_, entry().field, sample, scratch_));
      samples.insert(samples.end(), alone.bytes.begin(), alone.bytes.end());
    }
    if (status.has_value() && samples.size() == count * field().sample_bytes() &&
        found != CutBox(shape, box, samples)) {
      return Differs("a region: other elements than the samples have");
    }
    if (!touches) {
      return status.has_value() || Differs("a region beside the damaged tile is not read");
    }
    Outcome outcome;
    if (!status.has_value()) outcome.error = status.error().code();
    outcome.bytes = std::move(samples);
    return IsExplained(first, count, outcome, "a region");
  }

  std::mt19937& random_;
  const std::unique_ptr<ByteSource> good_source_;
  const PackFile good_;
  std::size_t number_ = 0;  // of the damaged chunk, in the index
  Bytes bytes_, scratch_;
  std::unique_ptr<ByteSource> bad_source_;
  std::optional<PackFile> bad_;
  std::vector<Outcome> alone_;
  Outcome elsewhere_;
  std::string difference_;
};

}  // namespace

PackOutcome DamageAndRead(const std::vector<std::byte>& pack, const std::vector<Specimen>& others,
                          std::mt19937& random) {
  return DamagedPack(pack, others, random).Compare();
}

}  // namespace forebay::compress
