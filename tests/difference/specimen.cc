#include "tests/difference/specimen.h"

#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "compress/decode/chunk/byte_stream.h"
#include "compress/encode/block/bit_packed_encoder.h"
#include "compress/encode/block/block_rans_encoder.h"
#include "compress/encode/chunk/byte_stream_encoder.h"
#include "compress/encode/chunk/coded_chunk_encoder.h"
#include "compress/encode/plane_encoder.h"
#include "compress/encode/testing/chunk_samples.h"
#include "compress/encode/testing/learned_samples.h"
#include "compress/encode/wavefront/wavefront_encoder.h"
#include "compress/format/chunk/chunk_header.h"
#include "compress/format/chunk/element_code.h"
#include "compress/format/plane/plane_shape.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint32_t kSeed = 20261128;

// A coded payload in parts that may be changed.
struct OpenPayload {
  CodedHead head;
  std::vector<Bytes> bodies;

  Bytes Close() {
    for (std::uint32_t i = 0; i < head.stream_count; ++i) head.streams[i].body = bodies[i];
    return SerialiseChunk(head);
  }
};

// Nothing where the payload has no sound head.
std::optional<OpenPayload> Open(const ChunkShape& shape, std::span<const std::byte> payload) {
  auto head = ParseChunkHead(shape, payload);
  if (!head.has_value()) return std::nullopt;
  OpenPayload open{.head = *head, .bodies = {}};
  for (std::uint32_t i = 0; i < kStreamsMax; ++i) {
    const std::span<const std::byte> body = open.head.streams[i].body;
    open.bodies.emplace_back(body.begin(), body.end());
  }
  return open;
}

class SpecimenMaker {
 public:
  std::vector<Specimen> Make() {
    for (const Dtype dtype : kAllDtypes) {
      for (std::size_t kind = 0; kind < kSampleKinds; ++kind) {
        AddFrontEnds(dtype, static_cast<SampleKind>(kind));
      }
    }
    AddColours();
    AddBounds();
    AddPlanes();
    AddBitMask();
    AddPlainCodecs();
    return std::move(specimens_);
  }

 private:
  void Add(std::string name, const ChunkShape& shape, Bytes payload,
           std::vector<std::shared_ptr<const Predictor>> predictors = {}) {
    specimens_.push_back({.name = std::move(name),
                          .shape = shape,
                          .payload = std::move(payload),
                          .predictors = std::move(predictors)});
  }

  // As it was encoded, and with all that lies behind zstd or LZ4 stored, so that damage gets past
  // zstd's checksum.
  void Encode(const std::string& name, const ChunkShape& shape, SampleKind kind,
              const ChunkOptions& options) {
    const Bytes raw = maker_.Make(shape, kind);
    auto payload = EncodeCodedChunk(shape, raw, options);
    FOREBAY_CHECK(payload.has_value());
    auto open = Open(shape, *payload);
    FOREBAY_CHECK(open.has_value());
    bool is_other = false;
    Bytes scratch(ByteStreamScratchBytes());
    for (std::uint32_t i = 0; i < open->head.stream_count; ++i) {
      ChunkStream& stream = open->head.streams[i];
      if (stream.coder != StreamCoder::kZstd && stream.coder != StreamCoder::kLz4) continue;
      Bytes plain(stream.raw_bytes);
      FOREBAY_CHECK(
          DecodeByteStream(stream.coder, open->bodies[i], plain, scratch).has_value());
      stream.coder = StreamCoder::kStore;
      open->bodies[i] = std::move(plain);
      is_other = true;
    }
    if (is_other) Add(name + ", stored streams", shape, open->Close());
    Add(name, shape, std::move(*payload));
  }

  void AddFrontEnds(Dtype dtype, SampleKind kind) {
    // Small frames lie upon each other; those of 64 x 64 are frames of their own.
    ChunkShape shape = {.dtype = dtype, .samples = 3, .rank = 2, .extent = {9, 40, 1, 1}};
    shape.fill_bits = 1;
    const std::string name =
        std::string(DtypeName(dtype)) + ", kind " + std::to_string(static_cast<int>(kind));
    Encode(name, shape, kind, {.profile = Profile::kDense});
    if (kind == SampleKind::kHoles || kind == SampleKind::kFewValues) {
      shape.extent = {64, 64, 1, 1};
      Encode(name + ", frames", shape, kind, {.profile = Profile::kDense});
    }
    ChunkShape line = {.dtype = dtype, .samples = 5, .rank = 1, .extent = {7, 1, 1, 1}};
    Encode(name + ", lines", line, kind, {.profile = Profile::kBalanced});
  }

  void AddColours() {
    for (const Dtype dtype : {Dtype::kU8, Dtype::kU16}) {
      for (const std::uint32_t channels : {2U, 3U, 4U}) {
        ChunkShape last = {.dtype = dtype, .samples = 2, .rank = 3, .extent = {9, 40, channels, 1}};
        last.channel_axis = 2;
        ChunkShape first = {.dtype = dtype, .samples = 2, .rank = 3,
                            .extent = {channels, 9, 40, 1}};
        first.channel_axis = 0;
        const std::string name = "channels " + std::to_string(channels);
        for (const Profile profile : {Profile::kFast, Profile::kDense}) {
          Encode(name + " last", last, SampleKind::kSmooth, {.profile = profile});
          Encode(name + " first", first, SampleKind::kSmooth, {.profile = profile});
        }
      }
    }
  }

  void AddBounds() {
    const std::array bounds = {ErrorBound{.mode = BoundMode::kAbsolute, .absolute = 0.25},
                               ErrorBound{.mode = BoundMode::kPointwise, .relative = 0.01}};
    for (const Dtype dtype : kAllDtypes) {
      for (const ErrorBound& bound : bounds) {
        const bool is_float = OrderOf(dtype) == CodeOrder::kFloat;
        if (bound.mode == BoundMode::kPointwise && !is_float) continue;
        ErrorBound own = bound;
        if (!is_float) own.absolute = 3;
        ChunkShape shape = {.dtype = dtype, .samples = 3, .rank = 2, .extent = {9, 40, 1, 1}};
        shape.fill_bits = 1;
        const std::string name = std::string(DtypeName(dtype)) + ", bound " +
                                 std::to_string(static_cast<int>(bound.mode));
        for (const SampleKind kind :
             {SampleKind::kSmooth, SampleKind::kHoles, SampleKind::kSpecial}) {
          Encode(name, shape, kind, {.profile = Profile::kDense, .bound = own});
        }
        shape.extent = {64, 64, 1, 1};
        shape.samples = 2;
        Encode(name + ", frames", shape, SampleKind::kHoles,
               {.profile = Profile::kBalanced, .bound = own});
      }
    }
  }

  // A chunk of one plane, whose body is given.
  void AddPlane(const std::string& name, const ChunkShape& shape, std::uint8_t bits, Bytes body,
                std::vector<std::shared_ptr<const Predictor>> predictors = {}) {
    CodedHead head;
    head.stages.plane_count = 1;
    head.stages.plane_bits[0] = bits;
    head.stream_count = 1;
    head.streams[0] = {
        .coder = StreamCoder::kPlanes,
        .raw_bytes = static_cast<std::uint32_t>(GeometryOf(shape).Plane(bits).bytes()),
        .body = body};
    Add(name + ", " + std::to_string(bits) + " bits", shape, SerialiseChunk(head),
        std::move(predictors));
  }

  void AddPlanes() {
    for (const std::uint8_t bits : {std::uint8_t{8}, std::uint8_t{5}, std::uint8_t{12},
                                    std::uint8_t{16}}) {
      ChunkShape shape = {.dtype = bits <= 8 ? Dtype::kU8 : Dtype::kU16, .samples = 3, .rank = 2};
      // Whole blocks and others, frames of their own and frames upon each other.
      for (const auto& [rows, columns] : {std::pair{9U, 35U}, {8U, 48U}, {64U, 64U}, {63U, 70U}}) {
        shape.extent = {rows, columns, 1, 1};
        AddPlanesOf(shape, bits);
      }
    }
  }

  void AddPlanesOf(const ChunkShape& shape, std::uint8_t bits) {
    const PlaneShape plane = GeometryOf(shape).Plane(bits);
    Bytes samples = maker_.Make(shape, SampleKind::kSmooth);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const bool is_high = shape.element_bytes() == 2 && i % 2 == 1;
      const auto mask = is_high ? (1U << (bits - 8)) - 1 : (1U << std::min<int>(bits, 8)) - 1;
      samples[i] &= static_cast<std::byte>(mask);
    }
    const auto add = [&](const char* name, std::byte kind, Bytes body) {
      body.insert(body.begin(), kind);
      AddPlane(name, shape, bits, std::move(body));
    };
    add("raw", kPlaneKindRaw, samples);
    add("zstd", kPlaneKindZstd, CompressZstd(samples, 3));
    add("wavefront", kPlaneKindWavefront, EncodeWavefront(plane, samples, {.fit_rounds = 1}));
    add("bit-packed", kPlaneKindBitPacked, EncodeBitPacked(plane, samples));
    add("block-rans", kPlaneKindBlockRans, EncodeBlockRans(plane, samples));
    if (bits != 8) return;
    const auto predictor = RandomPredictor(kSeed, {21, 6, 2}, {35, 6, 2});
    AddPlane("learned", shape, bits, EncodeEveryBlockLearned(plane, samples, *predictor),
             {predictor});
    AddPlane("learned, its predictor missing", shape, bits,
             EncodeEveryBlockLearned(plane, samples, *predictor));
  }

  // A mask that is coded as planes, upon elements of no planes.
  void AddBitMask() {
    for (const std::uint32_t rows : {9U, 64U}) {
      const ChunkShape shape = {.dtype = Dtype::kF32, .samples = 3, .rank = 2,
                                .extent = {rows, 64, 1, 1}};
      Bytes mask(shape.elements());
      for (std::byte& bit : mask) bit = static_cast<std::byte>(maker_.Below(7) == 0);
      const auto body = EncodePlanes(GeometryOf(shape).Plane(1), mask, Profile::kDense);
      FOREBAY_CHECK(body.has_value());
      CodedHead head;
      head.stages.mask_count = 1;
      head.stages.masks[0].pattern = 0x7FC0'0001;
      head.stream_count = 1;
      head.streams[0] = {.coder = StreamCoder::kPlanes,
                         .raw_bytes = static_cast<std::uint32_t>(mask.size()), .body = *body};
      Add("a mask of planes", shape, SerialiseChunk(head));
    }
  }

  void AddPlainCodecs() {
    const ChunkShape shape = {.dtype = Dtype::kU16, .samples = 4, .rank = 2,
                              .extent = {9, 40, 1, 1}};
    const Bytes raw = maker_.Make(shape, SampleKind::kFewValues);
    Add("codec store", shape, raw);
    specimens_.back().codec = ChunkCodec::kStore;
    Add("codec zstd", shape, CompressZstd(raw, 3));
    specimens_.back().codec = ChunkCodec::kZstd;
    Add("codec lz4", shape, CompressLz4(raw));
    specimens_.back().codec = ChunkCodec::kLz4;
  }

  SampleMaker maker_{kSeed};
  std::vector<Specimen> specimens_;
};

class Mutator {
 public:
  Mutator(const std::vector<Specimen>& others, std::mt19937& random)
      : others_(others), random_(random) {}

  Specimen Run(Specimen specimen) {
    if (specimen.codec == ChunkCodec::kCoded && Below(2) == 0) {
      if (auto open = Open(specimen.shape, specimen.payload)) {
        for (std::uint64_t changes = 1 + Below(2); changes > 0; --changes) ChangePart(*open);
        specimen.payload = open->Close();
        return specimen;
      }
    }
    for (std::uint64_t changes = 1 + Below(3); changes > 0; --changes) {
      ChangeBytes(specimen.payload);
    }
    if (Below(200) == 0) specimen.codec = static_cast<ChunkCodec>(Below(5));
    return specimen;
  }

 private:
  std::uint64_t Bits() {
    const std::uint64_t high = random_();
    return high << 32 | random_();
  }
  std::uint64_t Below(std::uint64_t limit) { return Bits() % limit; }
  std::byte AnyByte() {
    constexpr std::array<int, 8> kCorners = {0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, 16};
    return static_cast<std::byte>(Below(2) == 0 ? kCorners[Below(kCorners.size())]
                                                : static_cast<int>(Below(256)));
  }
  // Near `value`, or anything up to `most`.
  std::uint64_t Other(std::uint64_t value, std::uint64_t most) {
    switch (Below(4)) {
      case 0: return value + 1;
      case 1: return value - 1;
      case 2: return 0;
      default: return Below(most + 1);
    }
  }

  void ChangeBytes(Bytes& bytes) {
    if (bytes.empty()) {
      bytes.push_back(AnyByte());
      return;
    }
    // Heads are short, and what they say matters most.
    const std::size_t reach = Below(2) == 0 ? std::min<std::size_t>(bytes.size(), 64)
                                            : bytes.size();
    const std::size_t at = Below(reach);
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t count = std::min<std::size_t>(1 + Below(8), bytes.size() - at);
    switch (Below(8)) {
      case 0: bytes[at] ^= static_cast<std::byte>(1 << Below(8)); break;
      case 1: bytes[at] = AnyByte(); break;
      case 2: bytes[at] = static_cast<std::byte>(std::to_integer<int>(bytes[at]) + 1); break;
      case 3: bytes.insert(place, AnyByte()); break;
      case 4: bytes.erase(place, place + static_cast<std::ptrdiff_t>(count)); break;
      case 5: bytes.resize(bytes.size() - Below(std::min<std::size_t>(bytes.size(), 40))); break;
      case 6:
        for (std::size_t i = 0; i < count; ++i) bytes[at + i] = AnyByte();
        break;
      default: {
        const Bytes& other = others_[Below(others_.size())].payload;
        for (std::size_t i = at; i < std::min({bytes.size(), other.size(), at + 64}); ++i) {
          bytes[i] = other[i];
        }
      }
    }
  }

  void ChangePart(OpenPayload& open) {
    if (open.head.stream_count > 0 && Below(2) == 0) {
      ChangeStream(open);
    } else {
      ChangeStages(open.head.stages);
    }
  }

  void ChangeStream(OpenPayload& open) {
    const std::size_t index = Below(open.head.stream_count);
    ChunkStream& stream = open.head.streams[index];
    Bytes& body = open.bodies[index];
    switch (Below(8)) {
      case 0: stream.coder = static_cast<StreamCoder>(Below(6)); break;
      case 1: stream.raw_bytes = static_cast<std::uint32_t>(Other(stream.raw_bytes, 9000)); break;
      case 2: {  // something else of the right size
        stream.coder = StreamCoder::kStore;
        body.resize(std::min<std::size_t>(stream.raw_bytes, std::size_t{1} << 20));
        const auto limit = static_cast<std::uint32_t>(1 + Below(256));
        for (std::byte& byte : body) byte = static_cast<std::byte>(random_() % limit);
        break;
      }
      default: ChangeBytes(body);
    }
  }

  void ChangeStages(ChunkStages& stages) {
    switch (Below(9)) {
      case 0: {
        std::uint8_t& bits = stages.plane_bits[Below(kPlanesMax)];
        bits = static_cast<std::uint8_t>(Other(bits, 17));
        break;
      }
      case 1: stages.plane_count = static_cast<std::uint8_t>(Below(kPlanesMax + 1)); break;
      case 2:
        stages.dictionary_count = static_cast<std::uint32_t>(Other(stages.dictionary_count, 300));
        break;
      case 3:
        stages.escape_count = static_cast<std::uint32_t>(Other(stages.escape_count, 300));
        break;
      case 4: stages.offset = Below(2) == 0 ? Bits() : Other(stages.offset, 300); break;
      case 5: stages.shift = static_cast<std::uint8_t>(Other(stages.shift, 65)); break;
      case 6: {
        ChunkMask& mask = stages.masks[Below(kMasksMax)];
        if (Below(3) == 0) stages.mask_count = static_cast<std::uint8_t>(Below(kMasksMax + 1));
        if (Below(2) == 0) mask.temporal = !mask.temporal;
        if (Below(2) == 0) mask.pattern = Bits() >> (8 * Below(8));
        break;
      }
      case 7: ChangeQuantiser(stages.quantiser); break;
      default: stages.colour = static_cast<ColourKind>(Below(4));
    }
  }

  void ChangeQuantiser(Quantiser& quantiser) {
    if (Below(3) == 0) quantiser.kind = static_cast<QuantiserKind>(Below(5));
    constexpr std::array<double, 9> kSteps = {0, -1, 1e-300, 1e300, 5e-324, HUGE_VAL, 0x1p-149,
                                              0x1p127, 0.1};
    if (Below(2) == 0) {
      quantiser.linear_step = kSteps[Below(kSteps.size())];
    } else {
      quantiser.linear_step = std::bit_cast<double>(Bits());
    }
    quantiser.integer_step = Below(2) == 0 ? Bits() >> Below(64) : Other(quantiser.integer_step, 9);
    if (Below(2) == 0) quantiser.origin = Bits();
  }

  const std::vector<Specimen>& others_;
  std::mt19937& random_;
};

}  // namespace

std::vector<Specimen> MakeSpecimens() { return SpecimenMaker().Make(); }

Specimen Mutate(const Specimen& from, const std::vector<Specimen>& others, std::mt19937& random) {
  return Mutator(others, random).Run(from);
}

}  // namespace forebay::compress
