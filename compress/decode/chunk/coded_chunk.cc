// Decodes a coded chunk stage by stage (docs/pack_chunk.md): masks, dictionary, planes, elements,
// and last the escapes, which overwrite single elements. ParseChunkHead has checked the lengths of
// all streams, and each stage checks what it reads. Planes are decoded into scratch and put
// together by element_assembler.h; a chunk whose elements are one plane as it is (IsIdentity) is
// decoded straight into the caller's memory. Called by chunk_decoder.cc.
#include "compress/decode/chunk/coded_chunk.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "compress/decode/chunk/byte_stream.h"
#include "compress/decode/chunk/element_assembler.h"
#include "compress/decode/chunk/mask_decoder.h"
#include "compress/decode/isa.h"
#include "compress/decode/plane_decoder.h"
#include "compress/decode/scratch_arena.h"
#include "compress/format/chunk/chunk_header.h"
#include "compress/format/chunk/element_code.h"
#include "compress/format/damaged.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

constexpr std::string_view kCodedChunkPart = "coded chunk";  // in errors

// The scratch memory of one chunk. Its sizes depend on the shape alone, so that a caller can
// allocate it before any payload is read.
struct CodedScratch {
  std::span<std::byte> byte_stream, plane_codec, planes;
  std::span<std::uint64_t> dictionary;
  std::array<std::span<std::uint8_t>, kMasksMax> masks;
  // Two, because places and values of escapes are read side by side. Other side streams use the
  // first, one after the other.
  std::array<std::span<std::byte>, 2> sides;
};

CodedScratch TakeCoded(const ChunkShape& shape, const ChunkGeometry& geometry,
                       ScratchArena& arena) {
  CodedScratch scratch;
  scratch.byte_stream = arena.Take<std::byte>(ByteStreamScratchBytes());
  // Which plane has which width is known only from the payload: there is memory for the worst one.
  std::size_t plane_codec = 0;
  if (geometry.allows_planes) {
    const std::uint8_t bits_max = shape.element_bytes() > 1 ? 16 : 8;
    for (std::uint8_t bits = 1; bits <= bits_max; ++bits) {
      plane_codec = std::max(plane_codec, PlaneScratchBytes(geometry.Plane(bits)));
    }
  }
  scratch.plane_codec = arena.Take<std::byte>(plane_codec);
  // Each plane begins at a cache line. ParseChunkHead refuses planes that together take more memory
  // than the elements, so this is enough for every payload.
  scratch.planes = arena.Take<std::byte>(
      shape.bytes() + kPlanesMax * kChannelsMax * ScratchArena::kAlignment);
  scratch.dictionary =
      arena.Take<std::uint64_t>(std::min<std::size_t>(shape.elements(), kDictionaryMax));
  for (auto& mask : scratch.masks) mask = arena.Take<std::uint8_t>(shape.elements());
  for (auto& side : scratch.sides) side = arena.Take<std::byte>(SideStreamBytesMax(shape));
  return scratch;
}

// Decodes one chunk: stages in the reverse order of encoding, on scratch memory taken up front.
class CodedChunk {
 public:
  CodedChunk(const ChunkShape& shape, std::uint32_t end, const FrameOutput& out,
             std::span<std::byte> scratch, PredictorList predictors, Isa isa)
      : shape_(shape), geometry_(GeometryOf(shape)), end_(end), out_(out),
        predictors_(predictors), isa_(isa) {
    ScratchArena arena(scratch);
    scratch_ = TakeCoded(shape, geometry_, arena);
  }

  Status Decode(std::span<const std::byte> payload) {
    FOREBAY_ASSIGN(head_, ParseChunkHead(shape_, payload));
    // A plane that is the elements needs no assembly, which saves a pass over the memory.
    if (IsIdentity()) {
      return DecodePlanes(geometry_.Plane(head_.stages.plane_bits[0]), head_.streams[0].body,
                          FramesWanted(),
                          AreWholeFrames() ? out_.Split(geometry_.sample_pixels / FramePixels())
                                           : out_,
                          scratch_.plane_codec, isa_, predictors_);
    }
    for (std::uint32_t i = 0; i < head_.stages.mask_count; ++i) FOREBAY_TRY(DecodeMask(i));
    // Masks and the dictionary are decoded before the planes, because elements are assembled in one
    // pass that needs all of them.
    FOREBAY_TRY(DecodeDictionary());
    FOREBAY_TRY(DecodeAllPlanes());
    FOREBAY_TRY(AssembleSamples());
    return ApplyEscapes();
  }

 private:
  std::size_t FramePixels() const { return std::size_t{geometry_.rows} * geometry_.columns; }

  // Frames of a plane that hold the pixels of samples 0 to end_ - 1.
  std::uint32_t FramesWanted() const {
    const std::size_t frame = FramePixels();
    // In a stacked frame the last wanted pixel may lie in the middle of a frame, which is then
    // decoded whole.
    const std::size_t pixels = end_ * geometry_.sample_pixels;
    return static_cast<std::uint32_t>((pixels + frame - 1) / frame);
  }

  bool AreWholeFrames() const { return geometry_.sample_pixels % FramePixels() == 0; }

  // True where the only plane's samples are the elements and what is wanted are whole frames: then
  // the plane codec writes straight into the caller's memory.
  bool IsIdentity() const {
    const ChunkStages& stages = head_.stages;
    if (head_.stream_count != 1 || stages.plane_count != 1 || stages.is_quantised()) return false;
    if (stages.offset != 0 || stages.shift != 0) return false;
    if (OrderOf(shape_.dtype) != CodeOrder::kUnsigned) return false;
    const PlaneShape plane = geometry_.Plane(stages.plane_bits[0]);
    return head_.streams[0].coder == StreamCoder::kPlanes &&
           plane.sample_bytes() == shape_.element_bytes() &&
           (AreWholeFrames() ||
            (out_.IsDense() && FramesWanted() * FramePixels() == end_ * geometry_.sample_pixels));
  }

  // Decodes a stream that is no plane into side memory `side`.
  Result<std::span<const std::byte>> DecodeSide(std::uint32_t stream, std::size_t side) {
    const ChunkStream& coded = head_.streams[stream];
    // ParseChunkHead has bounded raw_bytes by SideStreamBytesMax, the size of this memory.
    const std::span<std::byte> raw = scratch_.sides[side].first(coded.raw_bytes);
    FOREBAY_TRY(DecodeByteStream(coded.coder, coded.body, raw, scratch_.byte_stream));
    return std::span<const std::byte>(raw);
  }

  Status DecodeMask(std::uint32_t index) {
    const ChunkStream& coded = head_.streams[index];
    const std::size_t wanted = end_ * shape_.sample_elements();
    if (coded.coder == StreamCoder::kPlanes) {
      return DecodePlanes(geometry_.Plane(1), coded.body, FramesWanted(),
                          std::as_writable_bytes(scratch_.masks[index])
                              .first(FramesWanted() * FramePixels()),
                          scratch_.plane_codec, isa_, predictors_);
    }
    FOREBAY_ASSIGN(const std::span<const std::byte> runs, DecodeSide(index, 0));
    const std::size_t period =
        head_.stages.masks[index].temporal ? shape_.elements() / geometry_.frames : 0;
    // Only the wanted elements are written. The runs of all are checked.
    return ExpandRuns(runs, shape_.elements(), period, scratch_.masks[index].first(wanted));
  }

  Status DecodeDictionary() {
    const std::uint32_t count = head_.stages.dictionary_count;
    if (count == 0) return {};
    FOREBAY_ASSIGN(const std::span<const std::byte> raw,
                   DecodeSide(head_.dictionary_stream(), 0));
    ByteReader reader(raw);
    std::uint64_t value = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      // Sums may wrap: the values are used modulo the element's width, as the format says.
      value += reader.ReadVarint() + (i > 0 ? 1 : 0);
      scratch_.dictionary[i] = value;
    }
    // Asked once: a reader without bytes returns zeros, which are harmless as values.
    if (!reader.ok() || reader.remaining() != 0) {
      return Damaged(kCodedChunkPart, "the dictionary is invalid");
    }
    return {};
  }

  Status DecodeAllPlanes() {
    const ChunkStages& stages = head_.stages;
    std::size_t used = 0;
    for (std::uint32_t i = 0; i < stages.plane_count * geometry_.channels; ++i) {
      const ChunkStream& stream = head_.streams[head_.plane_stream() + i];
      const PlaneShape shape = geometry_.Plane(stages.plane_bits[i % stages.plane_count]);
      if (stream.coder == StreamCoder::kConstant) {
        planes_[i] = {.sample_bytes = shape.sample_bytes(), .constant = ConstantOf(stream.body)};
        // Higher bits would run into the plane above when codes are put together.
        planes_[i].constant &= (1U << shape.bits) - 1;
        continue;
      }
      const std::span<std::byte> samples = scratch_.planes.subspan(used, stream.raw_bytes);
      // The memory has room for this rounding, once for each possible plane.
      used += (stream.raw_bytes + ScratchArena::kAlignment - 1) / ScratchArena::kAlignment *
              ScratchArena::kAlignment;
      planes_[i] = {.samples = samples.data(), .sample_bytes = shape.sample_bytes()};
      if (stream.coder == StreamCoder::kPlanes) {
        const std::size_t frame_bytes = shape.frame_samples() * shape.sample_bytes();
        FOREBAY_TRY(DecodePlanes(shape, stream.body, FramesWanted(),
                                 samples.first(FramesWanted() * frame_bytes),
                                 scratch_.plane_codec, isa_, predictors_));
      } else {
        // Bytes have no frames: a plane of this kind is decoded whole, however few samples are
        // wanted.
        FOREBAY_TRY(DecodeByteStream(stream.coder, stream.body, samples, scratch_.byte_stream));
      }
    }
    return {};
  }

  static std::uint32_t ConstantOf(std::span<const std::byte> body) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < body.size(); ++i) {
      value |= std::to_integer<std::uint32_t>(body[i]) << (8 * i);
    }
    return value;
  }

  // Assembles all samples that are wanted. Those that lie one after the other in the output are one
  // job, so that a vector loop is not cut at every sample.
  Status AssembleSamples() {
    const std::size_t bytes = shape_.sample_bytes();
    for (std::size_t i = 0; i < end_;) {
      const std::span<std::byte> place = out_.At(i, bytes);
      const std::size_t count = place.empty() ? 1 : out_.RunLength(i, end_, bytes);
      if (!place.empty()) {
        FOREBAY_TRY(AssembleElements(JobOf(i, count), {place.data(), count * bytes}));
      }
      i += count;
    }
    return {};
  }

  AssemblyJob JobOf(std::size_t first_sample, std::size_t sample_count) const {
    AssemblyJob job;
    job.shape = &shape_;
    job.geometry = &geometry_;
    job.stages = &head_.stages;
    job.planes = std::span(planes_).first(head_.stages.plane_count * geometry_.channels);
    job.dictionary = scratch_.dictionary.first(head_.stages.dictionary_count);
    const std::size_t first = first_sample * shape_.sample_elements();
    const std::size_t count = sample_count * shape_.sample_elements();
    for (std::size_t i = 0; i < head_.stages.mask_count; ++i) {
      job.masks[i] = scratch_.masks[i].subspan(first, count);
    }
    job.isa = isa_;
    job.first_sample = static_cast<std::uint32_t>(first_sample);
    job.sample_count = static_cast<std::uint32_t>(sample_count);
    return job;
  }

  // Overwrites the elements that the other stages could not represent. Places are gaps between
  // them, so they ascend. All are checked, also those of samples that are not wanted.
  Status ApplyEscapes() {
    if (head_.stages.escape_count == 0) return {};
    FOREBAY_ASSIGN(const std::span<const std::byte> places, DecodeSide(head_.escape_stream(), 0));
    FOREBAY_ASSIGN(const std::span<const std::byte> values,
                   DecodeSide(head_.escape_stream() + 1, 1));
    const std::size_t element_bytes = shape_.element_bytes();
    ByteReader reader(places);
    std::uint64_t place = 0;
    for (std::uint32_t i = 0; i < head_.stages.escape_count; ++i) {
      const std::uint64_t gap = reader.ReadVarint();
      const std::uint64_t from = place + (i > 0 ? 1 : 0);
      // Written as a difference, because `from + gap` could overflow with a hostile gap.
      if (!reader.ok() || from > shape_.elements() || gap >= shape_.elements() - from) {
        return Damaged(kCodedChunkPart, "an escape lies beyond the chunk");
      }
      place = from + gap;
      const std::uint64_t sample = place / shape_.sample_elements();
      // This sample is not wanted, so nothing is written. The loop goes on, because later places
      // must be checked.
      if (sample >= end_) continue;
      const std::span<std::byte> to = out_.At(sample, shape_.sample_bytes());
      if (to.empty()) continue;
      std::memcpy(to.data() + place % shape_.sample_elements() * element_bytes,
                  values.data() + i * element_bytes, element_bytes);
    }
    if (reader.remaining() != 0) return Damaged(kCodedChunkPart, "the escapes are invalid");
    return {};
  }

  const ChunkShape& shape_;
  const ChunkGeometry geometry_;
  const std::size_t end_;
  const FrameOutput& out_;
  const PredictorList predictors_;
  const Isa isa_;
  CodedScratch scratch_;
  CodedHead head_;
  std::array<PlaneSource, kPlanesMax * kChannelsMax> planes_;
};

}  // namespace

std::size_t CodedChunkScratchBytes(const ChunkShape& shape) {
  ScratchArena arena;
  TakeCoded(shape, GeometryOf(shape), arena);
  return arena.bytes();
}

Status DecodeCodedChunk(const ChunkShape& shape, std::span<const std::byte> payload,
                        std::uint32_t end, const FrameOutput& out, std::span<std::byte> scratch,
                        PredictorList predictors, Isa isa) {
  FOREBAY_CHECK(end > 0 && end <= shape.samples);
  return CodedChunk(shape, end, out, scratch, predictors, isa).Decode(payload);
}

}  // namespace forebay::compress
