#include "tests/difference/read_ways.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "compress/decode/isa.h"
#include "compress/decode/pack/chunk_record.h"
#include "compress/format/pack/pack_format.h"
#include "proto/contract/byte_cursor.h"
#include "tests/difference/sample_box.h"

namespace forebay::compress {
namespace {

constexpr std::byte kCanary{0xC7};
constexpr std::size_t kGuardBytes = 64;
constexpr std::uint64_t kFirstSample = 40;  // of the chunk in its pack
constexpr std::uint32_t kTilesOfAxis = 2;

std::optional<ErrorCode> CodeOf(const Status& status) {
  if (status.has_value()) return std::nullopt;
  return status.error().code();
}

std::string NameOf(Isa isa) {
  constexpr std::array<const char*, 3> kNames = {"scalar", "AVX2", "AVX-512"};
  return kNames.at(static_cast<std::size_t>(isa));
}

// Clear and IsUntouched do not loop over the bytes themselves: tests are compiled without
// optimisation, and half of this one's time would go there.
void Clear(std::span<std::byte> bytes) {
  std::memset(bytes.data(), std::to_integer<int>(kCanary), bytes.size());
}

// The first byte is a canary, and each is as the one before it.
bool IsUntouched(std::span<const std::byte> bytes) {
  if (bytes.empty()) return true;
  return bytes[0] == kCanary &&
         std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

// Strided memory in which every wanted element is known, and what lies beside them is guarded.
class GuardedBox {
 public:
  // Elements lie in the order of axes, with gaps of a few elements between rows and samples.
  GuardedBox(const ChunkShape& shape, const ChunkRange& range, std::uint32_t gap)
      : range_(range), element_bytes_(shape.element_bytes()) {
    std::size_t stride = element_bytes_;
    for (std::size_t axis = kChunkRankMax; axis-- > 0;) {
      out_.axis_stride[axis] = stride;
      stride = stride * range.extent[axis] + gap * element_bytes_;
    }
    out_.sample_stride = stride;
    memory_.assign(stride * range.sample_count + 2 * kGuardBytes, kCanary);
    out_.memory = std::span(memory_).subspan(kGuardBytes, memory_.size() - 2 * kGuardBytes);
  }

  const StridedOutput& output() const { return out_; }

  // Takes the elements out, dense; what is left is what nobody may have written.
  std::vector<std::byte> TakeElements() {
    std::vector<std::byte> dense;
    const std::size_t row_bytes = range_.extent[3] * element_bytes_;
    ForEachRow([&](std::size_t at) {
      const std::span<std::byte> row = out_.memory.subspan(at, row_bytes);
      dense.insert(dense.end(), row.begin(), row.end());
      Clear(row);
    });
    return dense;
  }
  bool IsAlone() const { return IsUntouched(memory_); }

 private:
  // Rows along the last axis, whose elements have no gap between them.
  template <typename Visit>
  void ForEachRow(const Visit& visit) const {
    for (std::uint32_t s = 0; s < range_.sample_count; ++s) {
      for (std::uint32_t a = 0; a < range_.extent[0]; ++a) {
        for (std::uint32_t b = 0; b < range_.extent[1]; ++b) {
          for (std::uint32_t c = 0; c < range_.extent[2]; ++c) {
            visit(s * out_.sample_stride + a * out_.axis_stride[0] + b * out_.axis_stride[1] +
                  c * out_.axis_stride[2]);
          }
        }
      }
    }
  }

  const ChunkRange range_;
  const std::size_t element_bytes_;
  std::vector<std::byte> memory_;
  StridedOutput out_;
};

// The chunk as a tile of a pack's field, whose samples' checksums are those of what they decode to
// alone.
class TileOfPack {
 public:
  TileOfPack(const Specimen& specimen, const std::vector<ReadOutcome>& alone, bool is_whole) {
    PackField field{.name = "field", .dtype = specimen.shape.dtype, .rank = specimen.shape.rank,
                    .extent = specimen.shape.extent, .bound = {}, .tile = specimen.shape.extent};
    field.channel_axis = specimen.shape.channel_axis;
    field.samples_per_chunk = specimen.shape.samples;
    // Channels are never cut, so that the tile has the chunk's shape.
    for (std::uint8_t axis = 0; !is_whole && axis < field.rank; ++axis) {
      if (int{axis} != int{field.channel_axis}) field.extent[axis] *= kTilesOfAxis;
    }
    schema_.fields = {field};
    schema_.predictors = specimen.predictors;
    entry_.tile = field.tiles() - 1;
    entry_.first_sample = kFirstSample;
    entry_.sample_count = specimen.shape.samples;
    for (std::uint32_t i = 0; i < entry_.sample_count; ++i) {
      checksums_.Le(SampleChecksum(context().identity, 0, entry_.tile, kFirstSample + i, 0,
                                   alone[i].bytes));
    }
    record_.head = {.tile = entry_.tile, .first_sample = kFirstSample,
                    .sample_count = entry_.sample_count, .codec = specimen.codec,
                    .raw_bytes = specimen.shape.bytes()};
    record_.head.checksums = checksums_.bytes();
    record_.payload = specimen.payload;
    scratch_.resize(RecordScratchBytes(schema_, entry_));
  }

  PackContext context() const { return {.schema = schema_, .identity = {}}; }
  const PackField& field() const { return schema_.fields[0]; }
  const ChunkEntry& entry() const { return entry_; }
  const ChunkRecord& record() const { return record_; }
  std::span<std::byte> scratch() { return scratch_; }

 private:
  PackSchema schema_;
  ChunkEntry entry_;
  ChunkRecord record_;
  ByteWriter checksums_;
  std::vector<std::byte> scratch_;
};

}  // namespace

std::string NameOf(std::optional<ErrorCode> error) {
  return error.has_value() ? std::string(ErrorCodeName(*error)) : "OK";
}

ReadWays::ReadWays(const Specimen& specimen, std::mt19937& random)
    : specimen_(specimen),
      shape_(specimen.shape),
      random_(random),
      scratch_(ChunkScratchBytes(specimen.shape)) {}

Isa ReadWays::AnyIsa() {
  const auto kernels = AvailableIsas();
  return kernels[Below(static_cast<std::uint32_t>(kernels.size()))];
}

std::pair<std::uint32_t, std::uint32_t> ReadWays::AnyRun() {
  const std::uint32_t first = Below(shape_.samples);
  return {first, 1 + Below(shape_.samples - first)};
}

bool ReadWays::HasDifference(std::string what) {
  if (difference_.empty()) difference_ = std::move(what);
  return true;
}

ReadOutcome ReadWays::ReadDense(std::uint32_t first, std::uint32_t count, Isa isa) {
  const ChunkRange range = ChunkRange::Samples(shape_, first, count);
  ReadOutcome outcome;
  Bytes memory(count * shape_.sample_bytes() + 2 * kGuardBytes, kCanary);
  const std::span<std::byte> out =
      std::span(memory).subspan(kGuardBytes, memory.size() - 2 * kGuardBytes);
  outcome.error = CodeOf(DecodeChunk(shape_, specimen_.codec, specimen_.payload, range,
                                     StridedOutput::Dense(shape_, range, out), scratch_,
                                     specimen_.predictors, isa));
  if (!IsUntouched(std::span(memory).first(kGuardBytes)) ||
      !IsUntouched(std::span(memory).last(kGuardBytes))) {
    HasDifference("a dense read writes beside its output");
  }
  outcome.bytes.assign(out.begin(), out.end());
  return outcome;
}

void ReadWays::ReadAlone() {
  for (std::uint32_t i = 0; i < shape_.samples; ++i) {
    alone_.push_back(ReadDense(i, 1, Isa::kScalar));
  }
}

std::optional<ErrorCode> ReadWays::whole_error() const {
  for (const ReadOutcome& outcome : alone_) {
    if (outcome.error.has_value()) return outcome.error;
  }
  return std::nullopt;
}

bool ReadWays::IsExplained(const std::vector<std::uint32_t>& samples, const ReadOutcome& outcome,
                           const std::string& way) {
  Bytes expected;
  bool may_fail = false, is_code = false;
  std::string codes;
  for (const std::uint32_t sample : samples) {
    const ReadOutcome& alone = alone_[sample];
    may_fail = may_fail || alone.error.has_value();
    is_code = is_code || (alone.error.has_value() && alone.error == outcome.error);
    codes += " " + NameOf(alone.error);
    expected.insert(expected.end(), alone.bytes.begin(), alone.bytes.end());
  }
  if (may_fail ? is_code : !outcome.error.has_value() && outcome.bytes == expected) return true;
  std::string what = way + " of samples";
  for (const std::uint32_t sample : samples) what += " " + std::to_string(sample);
  what += ": " + NameOf(outcome.error) + ", alone" + codes;
  if (!may_fail && !outcome.error.has_value()) {
    const auto at = std::ranges::mismatch(outcome.bytes, expected).in1 - outcome.bytes.begin();
    what += "; another byte at " + std::to_string(at);
  }
  HasDifference(std::move(what));
  return false;
}

bool ReadWays::CheckKernels() {
  std::vector<std::uint32_t> all(shape_.samples);
  std::iota(all.begin(), all.end(), 0U);
  for (const Isa isa : AvailableIsas()) {
    if (!IsExplained(all, ReadDense(0, shape_.samples, isa), "whole, " + NameOf(isa))) {
      return false;
    }
    const std::uint32_t one = Below(shape_.samples);
    if (!IsExplained({one}, ReadDense(one, 1, isa), "alone, " + NameOf(isa))) return false;
  }
  const auto [first, count] = AnyRun();
  const Isa isa = AnyIsa();
  return IsExplained({all.begin() + first, all.begin() + first + count},
                     ReadDense(first, count, isa), "a run, " + NameOf(isa));
}

// Some samples, each at a place of its own, in any order and at any address.
bool ReadWays::CheckPlaces(bool as_records) {
  const std::size_t bytes = shape_.sample_bytes(), gap = 1 + Below(70);
  const std::uint32_t count = 1 + Below(shape_.samples);
  Bytes memory(count * (bytes + gap) + gap, kCanary);
  std::vector<std::span<std::byte>> places(count);
  std::vector<std::uint32_t> samples;
  const std::uint32_t turn = Below(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i + 1 < count && Below(3) == 0) continue;  // the last one is wanted
    places[i] = std::span(memory).subspan(gap + (i + turn) % count * (bytes + gap), bytes);
    samples.push_back(i);
  }
  const Isa isa = AnyIsa();
  ReadOutcome outcome;
  if (as_records) {
    TileOfPack tile(specimen_, alone_, true);
    outcome.error = CodeOf(DecodeSamples(tile.context(), tile.entry(), tile.record(), places,
                                         tile.scratch()));
  } else {
    outcome.error = CodeOf(DecodeChunkSamples(shape_, specimen_.codec, specimen_.payload, places,
                                              scratch_, specimen_.predictors, isa));
  }
  for (const std::uint32_t sample : samples) {
    outcome.bytes.insert(outcome.bytes.end(), places[sample].begin(), places[sample].end());
    Clear(places[sample]);
  }
  const std::string way = as_records ? "samples of a record" : "places, " + NameOf(isa);
  if (!IsUntouched(memory)) return !HasDifference(way + ": writes beside the places");
  return IsExplained(samples, outcome, way);
}

// A box of a run of samples, with gaps between its rows.
bool ReadWays::CheckBox() {
  const auto [first, count] = AnyRun();
  ChunkRange range = ChunkRange::Samples(shape_, first, count);
  for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
    range.origin[axis] = Below(shape_.extent[axis]);
    range.extent[axis] = 1 + Below(shape_.extent[axis] - range.origin[axis]);
  }
  GuardedBox box(shape_, range, Below(3));
  const Isa isa = AnyIsa();
  const auto error = CodeOf(DecodeChunk(shape_, specimen_.codec, specimen_.payload, range,
                                        box.output(), scratch_, specimen_.predictors, isa));
  const Bytes found = box.TakeElements();
  const std::string way = "a box, " + NameOf(isa);
  if (!box.IsAlone()) return !HasDifference(way + ": writes beside the box");
  ReadOutcome outcome{.error = error, .bytes = {}};
  std::vector<std::uint32_t> samples(count);
  std::iota(samples.begin(), samples.end(), first);
  // What a box holds follows from the whole samples, which are then compared.
  for (const std::uint32_t sample : samples) {
    outcome.bytes.insert(outcome.bytes.end(), alone_[sample].bytes.begin(),
                         alone_[sample].bytes.end());
  }
  if (!error.has_value() && found != CutBox(shape_, range, outcome.bytes)) {
    return !HasDifference(way + ": other elements than the samples have");
  }
  return IsExplained(samples, outcome, way);
}

// A region of a pack's samples that takes in all of the tile or a part of it, and more.
bool ReadWays::CheckTile() {
  TileOfPack tile(specimen_, alone_, false);
  const PackField& field = tile.field();
  const auto origin = field.TileOrigin(tile.entry().tile);
  const auto [first, count] = AnyRun();
  ChunkRange inside = ChunkRange::Samples(shape_, first, count);
  TileRequest request{
      .first_sample = kFirstSample + first, .count = count, .region = {}, .out = {}};
  ChunkRange memory = inside;
  for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
    request.region.origin[axis] = Below(field.extent[axis]);
    request.region.extent[axis] =
        std::max(origin[axis] + 1, request.region.origin[axis] + 1) -
        request.region.origin[axis];
    const std::uint32_t low = std::max(origin[axis], request.region.origin[axis]);
    const std::uint32_t end = request.region.origin[axis] + request.region.extent[axis];
    request.region.extent[axis] += Below(field.extent[axis] - end + 1);
    inside.origin[axis] = low - origin[axis];
    inside.extent[axis] = request.region.origin[axis] + request.region.extent[axis] - low;
    memory.extent[axis] = request.region.extent[axis];
  }
  GuardedBox box(shape_, memory, Below(3));
  request.out = box.output();
  const auto error = CodeOf(
      DecodeTile(tile.context(), tile.entry(), tile.record(), request, tile.scratch()));
  const Bytes found = box.TakeElements();
  if (!box.IsAlone()) return !HasDifference("a region: writes beside it");
  std::vector<std::uint32_t> samples(count);
  std::iota(samples.begin(), samples.end(), first);
  ReadOutcome outcome{.error = error, .bytes = {}};
  for (const std::uint32_t sample : samples) {
    outcome.bytes.insert(outcome.bytes.end(), alone_[sample].bytes.begin(),
                         alone_[sample].bytes.end());
  }
  if (!error.has_value()) {
    ChunkShape region = shape_;
    region.samples = count;
    region.extent = memory.extent;
    ChunkRange of_tile = inside;
    of_tile.first_sample = 0;
    for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
      of_tile.origin[axis] = memory.extent[axis] - inside.extent[axis];
    }
    if (CutBox(region, of_tile, found) != CutBox(shape_, inside, outcome.bytes)) {
      return !HasDifference("a region: other elements than the samples have");
    }
  }
  return IsExplained(samples, outcome, "a region");
}

bool ReadWays::CheckRecord() {
  TileOfPack tile(specimen_, alone_, true);
  ReadOutcome outcome;
  outcome.bytes.resize(shape_.bytes());
  outcome.error = CodeOf(DecodeRecord(tile.context(), tile.entry(), tile.record(), outcome.bytes,
                                      tile.scratch()));
  std::vector<std::uint32_t> all(shape_.samples);
  std::iota(all.begin(), all.end(), 0U);
  return IsExplained(all, outcome, "a record");
}

std::optional<std::string> ReadWays::FindDifference() {
  ReadAlone();
  if (CheckKernels() && CheckPlaces(false) && CheckBox() && CheckRecord() && CheckPlaces(true)) {
    CheckTile();
  }
  if (difference_.empty()) return std::nullopt;
  return difference_;
}

}  // namespace forebay::compress
